#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes src/core/sm_table.h, what suggest_num_sms answers on GPUs, from lines of `ep-bench sweep --json`.

Prints it; --write replaces the file. For each curve (operation, layout, bytes of a row, rows) the table has the least
number of SMs whose median is within --percent of the curve's best, but at most --most: an operation that copies inside
the GPU gains from every SM, and how many it may have is the caller's to say."""

import argparse
import collections
import json
import pathlib

ROOT = pathlib.Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench" / "results" / "h200x2.jsonl"
TABLE = ROOT / "src" / "core" / "sm_table.h"
ELEMENT_BYTES = {"bf16": 2, "fp16": 2, "fp32": 4, "fp8": 1, "int8": 1}
MOVEMENTS = {"dispatch": "kDispatch", "combine": "kCombine"}
LAYOUTS = {"flat": "kFlat", "expert_major": "kExpertMajor"}
MIN_POINTS = 3  # fewer are no curve

HEAD = """\
// SPDX-License-Identifier: Apache-2.0
// Measured budgets by shape, written by tools/sm_table.py from bench/results/{name}.
//
// {origin}
#pragma once

#include "core/sm_curve.h"

namespace ep::core {{

/// The least SMs within {percent} % of the best of each curve, {most} at most.
inline constexpr MeasuredBudget kMeasuredBudgets[] = {{
"""
TAIL = """\
};

}  // namespace ep::core
"""


def read_lines(path):
    for text in path.read_text(encoding="utf-8").splitlines():
        line = json.loads(text)
        if line["op"] in MOVEMENTS and line["backend"] == "cuda" and line["placement"] == "arena":
            yield line


def shape_of(line):
    """As OpShape::num_rows counts."""
    copies = min(line["ranks"], line["topk"]) if line["layout"] == "flat" else line["topk"]
    return (MOVEMENTS[line["op"]], LAYOUTS[line["layout"]], line["hidden"] * ELEMENT_BYTES[line["dtype"]],
            line["tokens"] * copies)


def curves_of(lines):
    """{shape: {mode: {SMs: line}}}; of several lines of a point the last counts."""
    curves = collections.defaultdict(lambda: collections.defaultdict(dict))
    for line in lines:
        if line["median_us"] is not None and not line["rows_wrong"]:
            curves[shape_of(line)][line["mode"]][line["sms"]] = line
    return curves


def longest(by_mode):
    """The curve with most points; graph replays before eager calls, which host time may cover."""
    return max(by_mode.items(), key=lambda item: (len(item[1]), item[0] == "graph"))[1]


def least_sms(curve, percent, most):
    best = min(line["median_us"] for line in curve.values())
    return min(most, min(sms for sms, line in curve.items() if line["median_us"] <= best * (1 + percent / 100)))


def origin_of(lines):
    used = sorted({(line["date"][:10], line["commit"]) for line in lines})
    machines = sorted({f"{line['ranks']} x {line['device']}, driver {line['driver']}" for line in lines})
    dates = sorted({date for date, _ in used})
    commits = ", ".join(commit for _, commit in used)
    return f"{'; '.join(machines)};\n// {', '.join(dates)}; commits {commits}."


def table_of(path, percent, most):
    used, rows = [], []
    for shape, by_mode in sorted(curves_of(read_lines(path)).items()):
        curve = longest(by_mode)
        if len(curve) < MIN_POINTS:
            continue
        used += curve.values()
        movement, layout, row_bytes, num_rows = shape
        rows.append(f"    {{Movement::{movement}, Layout::{layout}, {row_bytes}, {num_rows}, "
                    f"{least_sms(curve, percent, most)}}},\n")
    if not rows:
        raise SystemExit(f"sm_table.py: no curve of {MIN_POINTS} points in {path}")
    return HEAD.format(name=path.name, origin=origin_of(used), percent=f"{percent:g}",
                       most=most) + "".join(rows) + TAIL


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", nargs="?", type=pathlib.Path, default=RESULTS)
    parser.add_argument("--percent", type=float, default=4)
    parser.add_argument("--most", type=int, default=16)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    table = table_of(options.results, options.percent, options.most)
    if options.write:
        TABLE.write_text(table, encoding="utf-8")
    else:
        print(table, end="")


if __name__ == "__main__":
    main()
