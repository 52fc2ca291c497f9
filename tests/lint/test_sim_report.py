#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests of tools/sim_report.py."""

import json
import unittest

from planted_tree import CheckTest

ROLE = """EP_HOST_DEVICE void tell(G group) {
  group.sync();
  // [sync:slot-tail] release: the payload.
  Memory::store_release_sys(tail, next);
}
EP_HOST_DEVICE bool hear(G group) {
  return Memory::load_acquire_sys(tail) == next;  // [sync:slot-tail] acquire
}
"""
MODEL = """# Memory model

| tag | publishes | writer | reader | scope | why this scope | found by |
|---|---|---|---|---|---|---|
| `slot-tail` | payload | `tell` | `hear` | sys | peers | `planted_store` |

## Kept although the simulator misses nothing without them

| what | what orders instead | why it stays |
|---|---|---|
"""
ARGUED = "| sync in `tell` | a broadcast | the rule |\n"


class SimReportTest(CheckTest):
    script = "sim_report.py"

    def setUp(self):
        super().setUp()
        self.write("src/intranode/a.h", ROLE)
        self.write("docs/memory_model.md", MODEL + ARGUED)
        self.report(release=3, acquire=5, sync=0)

    def report(self, **seeds):
        lines = {"sync": 2, "release": 4, "acquire": 7}
        entries = [{"order": order, "file": "intranode/a.h", "line": lines[order], "region": "", "seed": seed}
                   for order, seed in seeds.items()]
        self.write("report.json", json.dumps(entries))

    def run_report(self, *arguments):
        return self.run_check("--report", str(self.root / "report.json"), *arguments)

    def model(self):
        return (self.root / "docs/memory_model.md").read_text(encoding="utf-8")

    def test_column_is_written_and_then_up_to_date(self):
        done = self.run_report()
        self.assertEqual(done.returncode, 1)
        self.assertIn("out of date", done.stdout)
        self.assertEqual(self.run_report("--write").returncode, 0)
        self.assertIn("| sim: release 3, acquire 5; `planted_store` |", self.model())
        self.assertEqual(self.run_report().returncode, 0)
        self.report(release=4, acquire=5, sync=0)
        self.assertEqual(self.run_report().returncode, 0, "another seed is no change")

    def test_a_tag_that_is_no_longer_found_is_told(self):
        self.run_report("--write")
        self.report(release=3, acquire=0, sync=0)
        done = self.run_report()
        self.assertEqual(done.returncode, 1)
        self.assertIn("no seed finds that acquire in hear is missing", done.stdout)

    def test_what_no_seed_finds_must_be_argued(self):
        self.write("docs/memory_model.md", MODEL)
        done = self.run_report("--write")
        self.assertEqual(done.returncode, 1)
        self.assertIn("src/intranode/a.h:2: no seed finds that sync in tell is missing", done.stdout)


if __name__ == "__main__":
    unittest.main()
