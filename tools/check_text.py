#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks what needs no parser: trailing space, final newline, non-ASCII, large files, headers of files, owned TODOs,
sources that no CMakeLists.txt lists."""

import pathlib
import re

import lint_source
from lint_source import Finding

MAX_FILE_BYTES = 500_000
SOURCE_SUFFIXES = (".h", ".cuh", ".cc", ".cu", ".py", ".sh", ".cmake")
SOURCE_NAMES = ("CMakeLists.txt", "dev", "run")
# Text that others wrote ships as it is.
FOREIGN = re.compile(r"bench/data/.*|LICENSE")

SPDX = "SPDX-License-Identifier: Apache-2.0"
TODO = re.compile(r"\b(TODO(?!\(#\d+\))|FIXME|XXX|HACK)\b")
USING_NAMESPACE = re.compile(r"\busing\s+namespace\b")


def is_source(path):
    return path.endswith(SOURCE_SUFFIXES) or path.split("/")[-1] in SOURCE_NAMES


def check_line(path, number, line):
    if line != line.rstrip():
        yield Finding(path, number, "trailing space")
    if not is_source(path):
        return
    if not line.isascii():
        column = next(i for i, char in enumerate(line) if not char.isascii())
        yield Finding(path, number, f"non-ASCII character U+{ord(line[column]):04X} in column {column + 1}")
    if TODO.search(line) and not path.startswith(("tools/check_text", "tests/lint/test_text")):
        yield Finding(path, number, "note without an issue: TODO(#123)")


def check_cpp(path, text):
    # Highway includes an -inl.h once for each CPU target.
    is_header = path.endswith((".h", ".cuh")) and not path.endswith("-inl.h")
    if is_header and "#pragma once" not in text:
        yield Finding(path, 1, "header without #pragma once")
    code = lint_source.strip_comments(text)
    for match in USING_NAMESPACE.finditer(code):
        yield Finding(path, lint_source.line_of(code, match.start()), "using namespace")


def is_listed(root, path):
    """Whether a CMakeLists.txt beside or above the file names it, in full or, for an example, by its stem."""
    file = pathlib.PurePosixPath(path)
    for folder in file.parents:
        lists = root / folder / "CMakeLists.txt"
        if lists.is_file():
            name = re.escape(str(file.relative_to(folder)))
            stem = re.escape(file.stem)
            if re.search(rf"(?m)(^|[\s(]){name}($|[\s)])|ep_add_example\({stem}\)",
                         lists.read_text(encoding="utf-8")):
                return True
    return False


def check_file(root, path):
    content = (root / path).read_bytes()
    if len(content) > MAX_FILE_BYTES:
        yield Finding(path, 1, f"file of {len(content)} bytes, at most {MAX_FILE_BYTES}")
    if b"\0" in content or FOREIGN.fullmatch(path) or not content:
        return
    text = content.decode("utf-8", errors="replace")
    if not text.endswith("\n") or text.endswith("\n\n"):
        yield Finding(path, text.count("\n") + 1, "file does not end with one newline")
    for number, line in enumerate(text.split("\n"), 1):
        yield from check_line(path, number, line)
    if is_source(path) and SPDX not in "\n".join(text.split("\n")[:2]):
        yield Finding(path, 1, f"the first lines lack '{SPDX}'")
    if path.endswith(lint_source.CPP_SUFFIXES):
        yield from check_cpp(path, text)
    must_be_listed = path.endswith((".cc", ".cu")) or path.startswith("include/")
    if must_be_listed and path.endswith(lint_source.CPP_SUFFIXES) and not is_listed(root, path):
        yield Finding(path, 1, "no CMakeLists.txt lists this file, so nothing builds or installs it")


def main():
    root = lint_source.argument_parser(__doc__).parse_args().root
    findings = [finding for path in lint_source.repository_files(root)
                for finding in check_file(root, path)]
    lint_source.exit_with(findings, "check_text")


if __name__ == "__main__":
    main()
