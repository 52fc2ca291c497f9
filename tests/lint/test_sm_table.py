#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""sm_table.py on planted curves, and the committed table against the committed results."""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOOL = ROOT / "tools" / "sm_table.py"


def line(sms, median_us, **changes):
    values = {"op": "dispatch", "backend": "cuda", "ranks": 2, "tokens": 4096, "hidden": 7168, "topk": 8,
              "dtype": "bf16", "layout": "flat", "sms": sms, "mode": "graph", "placement": "arena",
              "median_us": median_us, "rows_wrong": 0, "date": "2026-01-02T03:04:05Z", "device": "a GPU",
              "driver": "1", "commit": "abc"}
    return json.dumps(values | changes)


def run(lines, *arguments):
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "lines.jsonl"
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return subprocess.run([sys.executable, TOOL, path, *arguments], capture_output=True, text=True, check=False)


class SmTable(unittest.TestCase):
    CURVE = [line(8, 300), line(12, 206), line(16, 200), line(132, 203)]
    ROW = "{Movement::kDispatch, Layout::kFlat, 14336, 8192, %d},"

    def test_takes_the_least_sms_close_to_the_best(self):
        self.assertIn(self.ROW % 12, run(self.CURVE).stdout)
        self.assertIn(self.ROW % 16, run(self.CURVE, "--percent", "2").stdout)

    def test_leaves_what_gains_from_every_sm_to_the_caller(self):
        gaining = [line(8, 1000), line(64, 300), line(132, 200)]
        self.assertIn(self.ROW % 16, run(gaining).stdout)
        self.assertIn(self.ROW % 132, run(gaining, "--most", "200").stdout)

    def test_names_the_origin(self):
        text = run(self.CURVE).stdout
        for part in ("2 x a GPU, driver 1", "2026-01-02", "abc", "within 4 %"):
            self.assertIn(part, text)

    def test_a_later_line_of_a_point_replaces_the_earlier_one(self):
        self.assertIn(self.ROW % 8, run([*self.CURVE, line(8, 201)]).stdout)

    def test_skips_other_backends_places_and_wrong_rows(self):
        others = [line(1, 1, backend="host"), line(1, 1, placement="outside"), line(1, 1, rows_wrong=1)]
        self.assertIn(self.ROW % 12, run(self.CURVE + others).stdout)

    def test_two_points_are_no_curve(self):
        self.assertNotEqual(run(self.CURVE[:2]).returncode, 0)

    def test_the_committed_table_is_that_of_the_committed_results(self):
        made = subprocess.run([sys.executable, TOOL], capture_output=True, text=True, check=True).stdout
        self.assertEqual(made, (ROOT / "src" / "core" / "sm_table.h").read_text(encoding="utf-8"),
                         "run tools/sm_table.py --write")


if __name__ == "__main__":
    unittest.main()
