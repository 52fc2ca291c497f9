#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the lengths of functions and files, nesting and parameter counts (needs universal-ctags)."""

import json
import re
import statistics
import subprocess
import sys
from typing import NamedTuple

import lint_source
from lint_source import Finding

# Exceptions: (path, function) -> reason. It may only shrink: an entry that is not needed is an error.
ALLOWED = {}

MAX_KERNEL_LINES = 25
MAX_ROLE_LINES = 60
MAX_STEP_LINES = 30
MAX_HOST_LINES = 60
HARD_HOST_LINES = 80  # no exception goes beyond
MAX_TEST_LINES = 50
MAX_NESTING = 4
MAX_PARAMETERS = 6
MAX_FILE_LINES = 500
MAX_HEADER_LINES = 300

# --report fails above these.
TARGET_MEDIAN = 10
TARGET_P90 = 35
TARGET_LONGEST = 80

TEST_LINE = re.compile(r"\s*(TEST|TEST_F|TEST_P|TYPED_TEST|TYPED_TEST_P|RC_GTEST_(FIXTURE_)?PROP)\(")
# A macro at file scope, which ctags takes for a function.
MACRO_NAME = re.compile(r"[A-Z][A-Z0-9_]*")
CTAGS = ["ctags", "--language-force=C++", "--kinds-C++=f", "--fields=+neSs", "--output-format=json",
         "-D", "RC_GTEST_PROP(suite,name,args)=void name args",
         "-D", "RC_GTEST_FIXTURE_PROP(suite,name,args)=void name args",
         "-I", "EP_HOST_DEVICE", "-I", "EP_DEVICE", "-I", "EP_API", "-f", "-", "-L", "-"]


class Function(NamedTuple):
    path: str
    name: str
    line: int
    end: int
    num_parameters: int
    nesting: int
    is_kernel: bool
    is_test: bool

    @property
    def num_lines(self):
        return self.end - self.line + 1

    @property
    def limit(self):
        """(kind, most lines) of this function."""
        if self.is_kernel:
            return "kernel", MAX_KERNEL_LINES
        if self.is_test:
            return "test body", MAX_TEST_LINES
        if self.path.endswith("_roles.h"):
            is_role = self.name.endswith("_role")
            return ("role", MAX_ROLE_LINES) if is_role else ("step", MAX_STEP_LINES)
        return "function", MAX_HOST_LINES


def count_parameters(signature):
    """Commas at the top level of "(int a, std::map<int, int> b)", plus one."""
    inner = signature[1:signature.rfind(")")].strip()
    if inner in ("", "void"):
        return 0
    depth = 0
    commas = 0
    for index, char in enumerate(inner):
        is_arrow = char == ">" and inner[index - 1:index] == "-"
        if char in "(<[{":
            depth += 1
        elif char in ")>]}" and not is_arrow:
            depth -= 1
        elif char == "," and depth == 0:
            commas += 1
    return commas + 1


CONTROL_HEAD = re.compile(r"\b(if|for|while|switch|catch)\b\s*(constexpr|consteval)?\s*$")
CONTROL_WORD = re.compile(r"\b(else|do|try)\s*$")
ATTRIBUTE = re.compile(r"\[\[[^\]]*\]\]\s*$")


def opens_control_block(code, brace):
    """Whether the brace at that offset begins the body of an if, a loop, a switch or a try."""
    before = ATTRIBUTE.sub("", code[max(0, brace - 1000):brace]).rstrip()
    if CONTROL_WORD.search(before):
        return True
    if not before.endswith(")"):
        return False
    depth = 0
    for index in range(len(before) - 1, -1, -1):
        depth += (before[index] == ")") - (before[index] == "(")
        if depth == 0:
            return bool(CONTROL_HEAD.search(before[:index]))
    return False


def nesting_of(code):
    """The deepest nesting of control blocks in a function's code."""
    open_blocks = []
    deepest = 0
    for index, char in enumerate(code):
        if char == "{":
            open_blocks.append(opens_control_block(code, index))
            deepest = max(deepest, sum(open_blocks))
        elif char == "}" and open_blocks:
            open_blocks.pop()
    return deepest


def is_kernel(code_lines, line):
    """Whether __global__ stands before the name, in the same declaration."""
    for index in range(line - 1, max(line - 5, -1), -1):
        if "__global__" in code_lines[index]:
            return True
        if index < line - 1 and code_lines[index].rstrip().endswith((";", "}")):
            return False
    return False


def run_ctags(root, paths):
    done = subprocess.run(CTAGS, input="\n".join(paths), cwd=root, capture_output=True, text=True,
                          check=False)
    if done.returncode != 0:
        sys.exit(f"check_function_size: ctags failed: {done.stderr.strip()}")
    return [json.loads(line) for line in done.stdout.splitlines()]


def collect_functions(root, paths):
    """Every named function with a body; a lambda counts as part of the function that holds it."""
    code = {path: lint_source.strip_comments(lint_source.read_text(root, path)).split("\n")
            for path in paths}
    for tag in run_ctags(root, paths):
        path, line, end = tag["path"], tag["line"], tag.get("end")
        is_test = bool(TEST_LINE.match(code[path][line - 1]))
        is_other_macro = MACRO_NAME.fullmatch(tag["name"]) and not is_test
        if end is None or tag["name"].startswith("__anon") or is_other_macro:
            continue
        name = tag["name"] + tag.get("signature", "") if is_test else tag["name"]
        yield Function(path, name, line, end, 0 if is_test else count_parameters(tag["signature"]),
                       nesting_of("\n".join(code[path][line - 1:end])),
                       is_kernel(code[path], line), is_test)


def check_function(function):
    kind, limit = function.limit
    allowed = (function.path, function.name) in ALLOWED
    if function.num_lines > limit and (not allowed or function.num_lines > HARD_HOST_LINES):
        yield f"{kind} {function.name} has {function.num_lines} lines, at most {limit}"
    if function.nesting > MAX_NESTING and not allowed:
        yield f"{function.name} nests {function.nesting} deep, at most {MAX_NESTING}"
    if function.num_parameters > MAX_PARAMETERS and not allowed:
        yield f"{function.name} has {function.num_parameters} parameters, at most {MAX_PARAMETERS}"


def needs_exception(function):
    return (function.num_lines > function.limit[1] or function.nesting > MAX_NESTING
            or function.num_parameters > MAX_PARAMETERS)


def check_exceptions(functions):
    needed = {(function.path, function.name) for function in functions if needs_exception(function)}
    for path, name in sorted(set(ALLOWED) - needed):
        yield Finding(path, 1, f"{name} is in the allow-list of check_function_size.py but needs no exception")


def check_file(root, path):
    num_lines = len(lint_source.read_text(root, path).splitlines())
    limit = MAX_HEADER_LINES if path.endswith((".h", ".cuh")) else MAX_FILE_LINES
    if num_lines > limit:
        yield Finding(path, num_lines, f"file has {num_lines} lines, at most {limit}")


def print_statistics(name, functions):
    """Prints one row of the report; returns whether the targets hold."""
    if not functions:
        return True
    lengths = sorted(function.num_lines for function in functions)
    median = statistics.median(lengths)
    p90 = lengths[(len(lengths) * 9 - 1) // 10]
    longest = max(functions, key=lambda function: function.num_lines)
    print(f"{name:<18} {len(lengths):>5} functions  median {median:g}  p90 {p90}  "
          f"longest {longest.num_lines} {longest.name}")
    return median <= TARGET_MEDIAN and p90 <= TARGET_P90 and longest.num_lines <= TARGET_LONGEST


def report(functions):
    """Prints lengths; returns whether the targets of the style hold for the library and for all code."""
    library = [f for f in functions if f.path.startswith(("include/", "src/"))]
    tests = [f for f in functions if f.path.startswith("tests/")]
    others = [f for f in functions if f not in library and f not in tests]
    holds = print_statistics("library", library)
    print_statistics("bench, examples", others)
    print_statistics("tests", tests)
    holds = print_statistics("all", functions) and holds
    print(f"targets: median <= {TARGET_MEDIAN}, p90 <= {TARGET_P90}, longest <= {TARGET_LONGEST}")
    for function in sorted(functions, key=lambda f: (-f.num_lines, f.path))[:10]:
        print(f"{function.num_lines:>5}  {function.path}:{function.line}  {function.name}")
    return holds


def main():
    parser = lint_source.argument_parser(__doc__)
    parser.add_argument("--report", action="store_true", help="print lengths; exit 1 above the targets")
    args = parser.parse_args()
    paths = lint_source.cpp_files(args.root)
    functions = list(collect_functions(args.root, paths)) if paths else []
    if args.report:
        sys.exit(0 if report(functions) else 1)
    findings = [Finding(f.path, f.line, reason) for f in functions for reason in check_function(f)]
    findings += check_exceptions(functions)
    findings += [finding for path in paths for finding in check_file(args.root, path)]
    lint_source.exit_with(findings, "check_function_size")


if __name__ == "__main__":
    main()
