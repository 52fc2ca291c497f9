#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How much of a path is written for one executor: exits 1 above 5 %.

Forked are the lines of a path's shared headers that stand under an `if constexpr` or a `requires` about the executor,
and the lines of its launch files (host*, cuda*) that use a word of the protocol instead of instantiating and launching.
"""

import pathlib
import re
from typing import NamedTuple

import lint_source
from lint_source import Finding

PATHS = ("intranode", "internode", "ll", "collectives")
LIMIT_PERCENT = 5.0

LAUNCH_FILE = re.compile(r"(host|cuda)\w*\.(h|cc|cu|cuh)")
EXECUTOR_CONDITION = re.compile(
    r"\b(if\s+constexpr\s*|requires\s*)\((?P<condition>[^;{]*?\b(Exec|G|kHas\w+)\b[^;{]*?)\)\s*(?=[{\w])")
PROTOCOL_WORD = re.compile(
    r"\b(Memory::|wait_until|wait_for_all|poll_until|stage_(wait|complete)|TicketStream|SlotRing|may_proceed"
    r"|(load|store|add|fetch_add)_(acquire|release|relaxed|acq_rel)_\w+)")


class Share(NamedTuple):
    path: str
    shared: int
    forked: int

    def percent(self):
        return 100.0 * self.forked / max(self.shared + self.forked, 1)


def code_lines(text):
    return {number for number, line in enumerate(text.splitlines(), 1) if line.strip()}


def end_of_branch(text, start):
    """Offset behind the statement or the block that begins at `start`."""
    brace, semicolon = text.find("{", start), text.find(";", start)
    if brace < 0 or 0 <= semicolon < brace:
        return semicolon + 1
    depth = 0
    for at in range(brace, len(text)):
        depth += {"{": 1, "}": -1}.get(text[at], 0)
        if depth == 0:
            return at + 1
    return len(text)


def forked_lines(text):
    """Lines under a condition about the executor, both branches of an `if constexpr` included."""
    lines = set()
    for match in EXECUTOR_CONDITION.finditer(text):
        end = end_of_branch(text, match.end())
        while (other := re.compile(r"\s*else\b").match(text, end)):
            end = end_of_branch(text, other.end())
        lines.update(range(lint_source.line_of(text, match.start()), lint_source.line_of(text, end - 1) + 1))
    return lines & code_lines(text)


def protocol_lines(text):
    return {number for number, line in enumerate(text.splitlines(), 1) if PROTOCOL_WORD.search(line)}


def runs_of(lines):
    """(first, count) of each run of consecutive lines."""
    runs = []
    for line in sorted(lines):
        if runs and line == sum(runs[-1]):
            runs[-1] = (runs[-1][0], runs[-1][1] + 1)
        else:
            runs.append((line, 1))
    return runs


def measure(root):
    """A Share per path that exists, and where the forked lines stand."""
    shares, places = [], []
    for path in PATHS:
        shared = forked = 0
        for name in lint_source.cpp_files(root, ("src",)):
            folder, _, file = name.rpartition("/")
            if folder != f"src/{path}":
                continue
            text = lint_source.strip_comments(lint_source.read_text(root, name))
            is_launch = LAUNCH_FILE.fullmatch(file) is not None
            lines = protocol_lines(text) if is_launch else forked_lines(text)
            shared += 0 if is_launch else len(code_lines(text) - lines)
            forked += len(lines)
            places += [Finding(name, first, f"{count} lines written for one executor")
                       for first, count in runs_of(lines)]
        if shared + forked > 0:
            shares.append(Share(path, shared, forked))
    return shares, places


def main():
    parser = lint_source.argument_parser(__doc__.splitlines()[0])
    parser.add_argument("--report", action="store_true", help="also print the shares of every path")
    arguments = parser.parse_args()
    shares, places = measure(pathlib.Path(arguments.root))
    for share in shares if arguments.report else ():
        print(f"{share.path:12} shared {share.shared:5}  forked {share.forked:4}  {share.percent():4.1f} %")
    is_over = any(share.percent() > LIMIT_PERCENT for share in shares)
    lint_source.exit_with(places if is_over else [], "executor_share")


if __name__ == "__main__":
    main()
