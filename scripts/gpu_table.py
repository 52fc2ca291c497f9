#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints the JSON lines of gpu_bench.sh as a table, beside first bars and goals of 2 x H200."""

import json
import sys
from typing import NamedTuple

LAUNCH_US = 10  # what an operation may take beyond its bytes
MIB = 1 << 20


class Target(NamedTuple):
    op: str
    dtype: str
    layout: str
    sms: int
    bar_us: float = None
    goal_us: float = None


TARGETS = (
    Target("dispatch", "bf16", "flat", 12, None, 198),
    Target("dispatch", "bf16", "flat", 14, None, 172),
    Target("dispatch", "bf16", "flat", 16, 190, None),
    Target("dispatch", "fp8", "flat", 12, None, 110),
    Target("dispatch", "fp8", "flat", 14, None, 95),
    Target("dispatch", "fp8", "flat", 16, 110, None),
    Target("combine", "bf16", "flat", 8, None, 195),
    Target("combine", "bf16", "flat", 10, None, 185),
    Target("combine", "bf16", "flat", 12, 200, None),
    Target("dispatch", "bf16", "expert_major", 132, 260, 200),
    Target("combine", "bf16", "expert_major", 132, 260, 205),
)
TARGET_TOKENS = 4096


def target_of(line):
    for target in TARGETS:
        shape = (line["op"], line["dtype"], line["layout"], line["sms"])
        if shape == target[:4] and line["tokens"] == TARGET_TOKENS and line["placement"] == "arena":
            return target
    return None


def verdict(value, bar, goal, is_better):
    """goal, bar, MISSED, or nothing without a target."""
    if goal is not None and is_better(value, goal):
        return "goal"
    if bar is not None:
        return "bar" if is_better(value, bar) else "MISSED"
    return "-" if goal is None else "below goal"


def at_most(value, limit):
    return value <= limit


def at_least(value, limit):
    return value >= limit


def number(value, digits=1):
    return "-" if value is None else f"{value:.{digits}f}"


def print_table(title, rows):
    widths = [max(len(cell) for cell in column) for column in zip(title, *rows)]
    for row in [title, *rows]:
        cells = [row[0].ljust(widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(row[1:], widths[1:])]
        print("  ".join(cells).rstrip())


def name_of(line):
    parts = [line["op"], line["dtype"], line["layout"]]
    if line["placement"] == "outside":
        parts.append("outside")
    if line["tokens"] != TARGET_TOKENS:
        parts.append(f"T {line['tokens']}")
    return " ".join(parts)


def print_operations(lines):
    rows = []
    for line in lines:
        target = target_of(line) or Target("", "", "", 0)
        share = line["fraction_of_ceiling"]
        rows.append([name_of(line), line["mode"], str(line["sms"]), number(line["median_us"]),
                     number(line["p10_us"]), number(line["p90_us"]), number(line["logical_gbps"]),
                     number(line["physical_gbps"]), number(share and 100 * share), number(line["host_us"]),
                     number(target.bar_us, 0), number(target.goal_us, 0),
                     verdict(line["median_us"], target.bar_us, target.goal_us, at_most),
                     str(line["rows_checked"]), str(line["rows_wrong"])])
    print_table(["operation", "mode", "SMs", "us", "p10", "p90", "logical", "physical", "% ceiling", "host us", "bar",
                 "goal", "verdict", "checked", "wrong"], rows)


def find(lines, **wanted):
    for line in lines:
        if all(line.get(key) == value for key, value in wanted.items()):
            return line
    return None


def floor_us(line):
    """Time of the bytes at the ceiling of this run."""
    share = line["fraction_of_ceiling"]
    return None if share is None else share * line["median_us"]


def share_rows(lines):
    """Shares of the ceiling that are targets of their own."""
    for op in ("dispatch", "combine"):
        line = find(lines, op=op, dtype="bf16", layout="flat", sms=132, mode="graph", tokens=TARGET_TOKENS)
        if line and floor_us(line):
            share = floor_us(line) / max(line["median_us"] - LAUNCH_US, 1)
            yield [f"{op}: wire floor / (time - {LAUNCH_US} us), 132 SMs", number(share, 3), "0.80", "0.92",
                   verdict(share, 0.80, 0.92, at_least)]
        line = find(lines, op=op, layout="expert_major", sms=16)
        copy = find(lines, op="p2p", what="local_copy", sms=16)
        if line and copy:
            share = line["logical_gbps"] / copy["gbps"]
            yield [f"{op} expert_major: share of what 16 SMs copy", number(share, 3), "0.70", "0.85",
                   verdict(share, 0.70, 0.85, at_least)]


def ratio_rows(lines):
    inside = find(lines, op="combine", layout="flat", sms=16, mode="graph", placement="arena")
    outside = find(lines, op="combine", layout="flat", sms=16, mode="graph", placement="outside")
    if inside and outside:
        ratio = outside["median_us"] / inside["median_us"]
        yield ["combine: outside / in the arena, 16 SMs", number(ratio, 2), "1.70", "1.30",
               verdict(ratio, 1.7, 1.3, at_most)]
    for line in lines:
        if line["op"] == "dispatch" and line["tokens"] < TARGET_TOKENS and floor_us(line):
            ratio = line["median_us"] / (LAUNCH_US + floor_us(line))
            yield [f"dispatch T {line['tokens']}: time / ({LAUNCH_US} us + wire floor)", number(ratio, 2), "-",
                   "1.15", verdict(ratio, None, 1.15, at_most)]


def cost_rows(lines):
    for op in ("dispatch", "combine"):
        times = [line["host_us"] for line in lines if line["op"] == op and line["host_us"] is not None]
        if times:
            yield [f"{op}: host us per call, eager, worst", number(max(times)), "20", "8",
                   verdict(max(times), 20, 8, at_most)]
    fixed = [line["fixed_bytes"] for line in lines if line.get("fixed_bytes")]
    if fixed:
        most = max(fixed) / MIB
        yield ["MiB of the arena beyond tensors, most", number(most), "64", "16", verdict(most, 64, 16, at_most)]


def warnings(lines):
    """Lines that are no figures: nothing says that the operation was right."""
    for line in lines:
        where = f"{name_of(line)}, {line['mode']}, {line['sms']} SMs"
        if line["rows_checked"] == 0:
            yield f"WARNING: not checked: {where}"
        elif line["rows_wrong"] > 0:
            yield f"WARNING: {line['rows_wrong']} of {line['rows_checked']} rows wrong: {where}"
        if line["fraction_of_ceiling"] is None:
            yield f"WARNING: no ceiling of the same run: {where}"


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: gpu_table.py LINES.jsonl")
    with open(sys.argv[1], encoding="utf-8") as file:
        everything = [json.loads(line) for line in file if line.strip()]
    lines = [line for line in everything if line["op"] != "p2p"]
    if not lines:
        sys.exit("gpu_table.py: no operation was measured")
    first = lines[0]
    print(f"{first['device']}, driver {first['driver']}, {first['clocks']} MHz at most, commit {first['commit']}, "
          f"{first['date']}")
    print_operations(lines)
    print()
    for warning in warnings(lines):
        print(warning)
    operations_and_links = lines + [line for line in everything if line["op"] == "p2p"]
    print_table(["target", "value", "bar", "goal", "verdict"],
                [*share_rows(operations_and_links), *ratio_rows(lines), *cost_rows(lines)])


if __name__ == "__main__":
    main()
