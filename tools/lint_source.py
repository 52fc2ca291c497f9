# SPDX-License-Identifier: Apache-2.0
"""What the checks share: which files to read, code without its comments, and how a finding is printed."""

import argparse
import os
import pathlib
import re
import subprocess
import sys
from typing import NamedTuple

CPP_SUFFIXES = (".h", ".cuh", ".cc", ".cu")
CPP_FOLDERS = ("include", "src", "python", "bench", "examples", "tests")


class Finding(NamedTuple):
    path: str
    line: int
    reason: str


def repository_files(root):
    """Every file that git tracks or would track, relative to root; without git, every file outside build/."""
    listed = subprocess.run(
        ["git", "-C", str(root), "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        capture_output=True, check=False) if (root / ".git").exists() else None
    if listed and listed.returncode == 0:
        names = [name for name in listed.stdout.decode().split("\0") if name]
    else:
        names = []
        for folder, folders, files in os.walk(root):
            folders[:] = [name for name in folders if name not in ("build", ".git", "__pycache__")]
            names += [os.path.relpath(os.path.join(folder, name), root) for name in files]
    return sorted(name for name in set(names) if (root / name).is_file())


def cpp_files(root, folders=CPP_FOLDERS):
    return [name for name in repository_files(root)
            if name.endswith(CPP_SUFFIXES) and name.split("/")[0] in folders]


def read_text(root, name):
    return (root / name).read_text(encoding="utf-8", errors="replace")


_COMMENT_OR_LITERAL = re.compile(
    r'//[^\n]*|/\*.*?\*/|R"(?P<d>[^(\s]*)\(.*?\)(?P=d)"|"(?:\\.|[^"\\\n])*"'
    r"|(?<![0-9A-Fa-f_])'(?:\\.|[^'\\\n])+'", re.DOTALL)
_INCLUDE_LINE = re.compile(r"[ \t]*#[ \t]*include[^\n]*")


def strip_comments(text):
    """The text with comments and literals blanked, line numbers unchanged; includes keep their names."""
    def blank(match):
        found = match.group(0)
        line_start = text.rfind("\n", 0, match.start()) + 1
        is_include = not found.startswith("/") and _INCLUDE_LINE.match(text, line_start)
        return found if is_include else re.sub(r"[^\n]", " ", found)
    return _COMMENT_OR_LITERAL.sub(blank, text)


def line_of(text, offset):
    return text.count("\n", 0, offset) + 1


def argument_parser(description):
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--root", type=pathlib.Path, default=pathlib.Path(__file__).parent.parent,
                        help="the checkout to look at")
    return parser


def exit_with(findings, name):
    """Prints the findings as file:line: reason and ends the process: 1 if there are any."""
    for finding in sorted(findings):
        print(f"{finding.path}:{finding.line}: {finding.reason}")
    if findings:
        print(f"{name}: {len(findings)} findings", file=sys.stderr)
    sys.exit(1 if findings else 0)
