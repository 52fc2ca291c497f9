#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares what the simulator found (./dev prove) with docs/memory_model.md: each [sync:tag] that it runs has the
seeds that find its weakening in the last column, and what no seed finds is argued there. --write fills the column."""

import json
import re
import sys

import check_sync_tags
import lint_source

MEMORY_MODEL = "docs/memory_model.md"
ARGUED_HEADING = "## Kept although the simulator misses nothing without them"
ARGUED_ROW = re.compile(r"^\| ([\w-]+) in `(\w+)` \|", re.MULTILINE)
# A site that serves several tags does so in regions of its own (layout/control.h).
TAG_OF_REGION = {"arrived": "arrive", "pulled": "pulled", "returned": "returned"}
FUNCTION = re.compile(r"(?:EP_HOST_DEVICE|^[\w:<>&* ]+?)[\w:<>&*, ]*?\b~?(\w+)\([^;]*$")
OTHER_TESTS = re.compile(r"`planted_\w+`")


def function_at(source, line):
    """The function that a line is in: the nearest definition above."""
    for index in range(line - 1, -1, -1):
        code = source.code[index]
        match = FUNCTION.search(code)
        if match and "EP_HOST_DEVICE" in code + source.code[max(index - 1, 0)] or match and re.match(r"^\S", code):
            return match.group(1)
    return "?"


# Orders of the copy unit, which roles ask for without naming a tag.
UNIT_ORDERS = {("row-proxy", "release"): "fence", ("row-proxy", "acquire"): "fence-acquired",
               ("stage-barrier", "acquire"): "wait-loaded"}


class Mutant:
    def __init__(self, entry, sources):
        self.order = entry["order"]
        self.seed = entry["seed"]
        path = entry["file"] if entry["file"].startswith("tests/") else "src/" + entry["file"]
        source = sources(path)
        index = entry["line"] - 1
        self.place = f"{path}:{entry['line']}"
        self.function = function_at(source, index)
        start = source.statement_start(index)
        lines = {*source.comment_lines_above(start), *source.comment_lines_above(index),
                 *range(start, index), *source.statement_lines(index)}
        self.region = entry["region"]
        self.tags = {tag for line in lines for tag in check_sync_tags.TAG.findall(source.lines[line])}
        if len(self.tags) > 1 and self.region in TAG_OF_REGION:
            self.tags = {TAG_OF_REGION[self.region]}

    def is_of(self, tag, half):
        if (tag, half) in UNIT_ORDERS:
            return self.order == UNIT_ORDERS[tag, half]
        return self.order == half and tag in self.tags


def load(root, path):
    cache = {}

    def sources(name):
        if name not in cache:
            cache[name] = check_sync_tags.Source(root, name)
        return cache[name]

    with open(path, encoding="utf-8") as file:
        return [Mutant(entry, sources) for entry in json.load(file)]


def column_of(tag, mutants, before):
    """The last cell of a tag's row: what the simulator says, and tests of other kinds that were named."""
    parts = []
    for order in ("release", "acquire"):
        seeds = [mutant.seed for mutant in mutants if mutant.seed and mutant.is_of(tag, order)]
        if seeds:
            parts.append(f"{order} {max(seeds)}")
    others = OTHER_TESTS.findall(before)
    cell = ["sim: " + ", ".join(parts)] if parts else []
    return "; ".join(cell + others) or before


def updated(text, mutants):
    lines = text.split("\n")
    for index, line in enumerate(lines):
        match = check_sync_tags.ROW.match(line)
        if not match or line.count("|") != 8:
            continue
        cells = line.split("|")
        cells[-2] = f" {column_of(match.group(1), mutants, cells[-2].strip())} "
        lines[index] = "|".join(cells)
    return "\n".join(lines)


def has_halves(text):
    """For comparison: which halves the simulator finds, not by which seed."""
    return re.sub(r"(release|acquire) \d+", r"\1", text)


def missing(text, mutants):
    argued = set(ARGUED_ROW.findall(text.partition(ARGUED_HEADING)[2]))
    return [mutant for mutant in mutants if mutant.seed == 0 and (mutant.order, mutant.function) not in argued]


def main():
    parser = lint_source.argument_parser(__doc__)
    parser.add_argument("--report", required=True, help="JSON of ep_prove --report")
    parser.add_argument("--write", action="store_true", help="write the column")
    arguments = parser.parse_args()
    mutants = load(arguments.root, arguments.report)
    path = arguments.root / MEMORY_MODEL
    text = path.read_text(encoding="utf-8")
    new_text = updated(text, mutants)
    if arguments.write:
        path.write_text(new_text, encoding="utf-8")
    failures = [f"{m.place}: no seed finds that {m.order} in {m.function} is missing, and {MEMORY_MODEL} does not argue"
                for m in missing(new_text, mutants)]
    if has_halves(new_text) != has_halves(text) and not arguments.write:
        failures.append(f"{MEMORY_MODEL}: the last column is out of date: tools/sim_report.py --write")
    num_found = sum(1 for mutant in mutants if mutant.seed)
    print(f"{len(mutants)} tags, syncs and fences weakened: {num_found} found, {len(mutants) - num_found} argued or open")
    print("\n".join(failures))
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
