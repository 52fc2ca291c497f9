#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that every release and acquire carries a [sync:name] tag, that each tag has both halves, and that
docs/memory_model.md has exactly one row for each tag."""

import collections
import re

import lint_source
from lint_source import Finding

MEMORY_MODEL = "docs/memory_model.md"
TAG = re.compile(r"\[sync:([^\]\s]*)\]")
TAG_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
ROW = re.compile(r"^\| `([^`]+)`", re.MULTILINE)

# The files that define the ordered accesses, or only forward them; a call elsewhere needs a tag.
DEFINERS = re.compile(r"src/primitives/(memory[^/]*|ptx\.cuh|row_pipe\.h)|src/fabric/sim/.*")

CALL_TAIL = r"\s*(<[^;(){}]*>)?\s*\("
ORDERED_CALL = re.compile(
    r"\b(\w*(?:_release_|_acquire_|_acq_rel_|fence_)\w*)" + CALL_TAIL
    + r"|\b(memory_order(?:_|::)(?:release|acquire|acq_rel))\b")
# What stands before a name that is declared, not called: a type, as in "void " or "T* ".
DECLARATION_HEAD = re.compile(r"(?<!\w)(?!return |else |do |co_return |throw )[A-Za-z_][\w:]*(<[^;(){}]*>)?[*&]* +$")
RELEASE_HALF = re.compile(
    r"\b\w*(release|publish|fence|acq_rel)\w*" + CALL_TAIL + r"|\bmemory_order(_|::)(release|acq_rel)\b")
ACQUIRE_HALF = re.compile(
    r"\b\w*(acquire|await|wait|acq_rel)\w*" + CALL_TAIL + r"|\bmemory_order(_|::)(acquire|acq_rel)\b")

# A statement of more lines than this is no call with a tag at its end.
MAX_STATEMENT_LINES = 8


class Source:
    """One file: its lines, and the same lines without comments."""

    def __init__(self, root, path):
        text = lint_source.read_text(root, path)
        self.path = path
        self.lines = text.split("\n")
        self.code = lint_source.strip_comments(text).split("\n")

    def statement_lines(self, first):
        """The lines from `first` to the one that ends its statement."""
        end = min(first + MAX_STATEMENT_LINES, len(self.code))
        for index in range(first, end):
            yield index
            if self.code[index].rstrip().endswith((";", "{", "}")):
                return

    def comment_lines_above(self, first):
        index = first - 1
        while index >= 0 and not self.code[index].strip() and self.lines[index].strip():
            yield index
            index -= 1

    def statement_start(self, index):
        """The line where the statement that `index` belongs to begins."""
        for start in range(index - 1, max(index - MAX_STATEMENT_LINES, -1), -1):
            if not self.code[start].strip() or self.code[start].rstrip().endswith((";", "{", "}", ":")):
                return start + 1
        return index

    def tagged_code(self, index):
        """The code that a tag on line `index` speaks of: its statement, else the statement below."""
        if self.code[index].strip():
            first = self.statement_start(index)
        else:
            first = index
            while first < len(self.code) and not self.code[first].strip():
                first += 1
        return "\n".join(self.code[line] for line in self.statement_lines(first))

    def has_tag(self, index):
        start = self.statement_start(index)
        lines = [*self.comment_lines_above(start), *self.comment_lines_above(index),
                 *range(start, index), *self.statement_lines(index)]
        return any(TAG.search(self.lines[line]) for line in lines)


def collect_tags(source, halves, findings):
    for index, line in enumerate(source.lines):
        for match in TAG.finditer(line):
            name = match.group(1)
            if not TAG_NAME.fullmatch(name):
                findings.append(Finding(source.path, index + 1, f"tag '{name}' is not kebab-case"))
                continue
            code = source.tagged_code(index)
            found = {half for half, pattern in (("release", RELEASE_HALF), ("acquire", ACQUIRE_HALF))
                     if pattern.search(code)}
            halves[name].append((source.path, index + 1, found))
            if not found:
                findings.append(Finding(
                    source.path, index + 1, f"[sync:{name}] stands beside neither a release nor an acquire"))


def find_untagged(source, findings):
    if DEFINERS.fullmatch(source.path) or not source.path.startswith("src/"):
        return
    for index, line in enumerate(source.code):
        match = ORDERED_CALL.search(line)
        if match and not DECLARATION_HEAD.search(line[:match.start()]) and not source.has_tag(index):
            name = match.group(1) or match.group(3)
            findings.append(Finding(source.path, index + 1, f"{name} carries no [sync:name] tag"))


def find_lone_halves(halves, findings):
    for name, places in halves.items():
        present = set().union(*(found for _, _, found in places))
        for half in ("release", "acquire"):
            if half not in present:
                path, line, _ = places[0]
                findings.append(Finding(path, line, f"[sync:{name}] has no {half} half"))


def check_rows(root, halves, findings):
    if not (root / MEMORY_MODEL).is_file():
        findings += [Finding(places[0][0], places[0][1], f"[sync:{name}] has no row: {MEMORY_MODEL} is missing")
                     for name, places in halves.items()]
        return
    text = lint_source.read_text(root, MEMORY_MODEL)
    rows = collections.defaultdict(list)
    for match in ROW.finditer(text):
        rows[match.group(1)].append(lint_source.line_of(text, match.start()))
    for name, places in halves.items():
        if name not in rows:
            findings.append(Finding(places[0][0], places[0][1], f"[sync:{name}] has no row in {MEMORY_MODEL}"))
    for name, lines in rows.items():
        if name not in halves:
            findings.append(Finding(MEMORY_MODEL, lines[0], f"row `{name}` has no [sync:{name}] in the sources"))
        findings += [Finding(MEMORY_MODEL, line, f"second row for `{name}`") for line in lines[1:]]


def main():
    root = lint_source.argument_parser(__doc__).parse_args().root
    halves = collections.defaultdict(list)
    findings = []
    for path in lint_source.cpp_files(root, ("include", "src")):
        source = Source(root, path)
        collect_tags(source, halves, findings)
        find_untagged(source, findings)
    find_lone_halves(halves, findings)
    check_rows(root, halves, findings)
    lint_source.exit_with(findings, "check_sync_tags")


if __name__ == "__main__":
    main()
