#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compiles device code and fails if any kernel has a stack frame or spills registers.

The compiler launcher of the CUDA targets: check_ptxas.py -- nvcc ... -Xptxas=-v -o FILE.o. It leaves a table of
registers, stack and spills beside the object, in FILE.o.ptxas.txt. With --log FILE it reads saved output of ptxas -v
and prints the table."""

import argparse
import pathlib
import re
import shutil
import subprocess
import sys

# Exceptions: kernel -> reason. It may only shrink: an entry that is not needed is an error.
ALLOWED = {}

ENTRY = re.compile(r"ptxas info\s*: Compiling entry function '(\S+)' for '(\w+)'")
PROPERTIES = re.compile(r"ptxas info\s*: Function properties for (\S+)")
FRAME = re.compile(r"\s+(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
USED = re.compile(r"ptxas info\s*: Used (\d+) registers")
INFO = re.compile(r"ptxas info\s*:|" + FRAME.pattern)


class Kernel:
    """What ptxas reports of one kernel on one architecture, functions that it calls included."""

    def __init__(self, mangled, arch):
        self.mangled = mangled
        self.name = mangled
        self.arch = arch
        self.registers = 0
        self.stack = 0
        self.spill_stores = 0
        self.spill_loads = 0

    @property
    def is_clean(self):
        return self.stack == 0 and self.spill_stores == 0 and self.spill_loads == 0

    def row(self):
        return (f"{self.name:<50} {self.arch:<7} {self.registers:>4} registers  {self.stack:>5} B stack  "
                f"{self.spill_stores:>5} B stored, {self.spill_loads:>5} B loaded by spills")


def parse(output):
    """The kernels of an output of ptxas -v."""
    kernels = []
    for line in output.splitlines():
        if match := ENTRY.match(line):
            kernels.append(Kernel(*match.groups()))
        elif match := FRAME.match(line):
            if not kernels:  # a function without a kernel before it
                kernels.append(Kernel("(device function)", "?"))
            stack, stores, loads = map(int, match.groups())
            kernels[-1].stack = max(kernels[-1].stack, stack)
            kernels[-1].spill_stores += stores
            kernels[-1].spill_loads += loads
        elif kernels and (match := USED.match(line)):
            kernels[-1].registers = int(match.group(1))
    return kernels


def short_name(demangled):
    """dispatch_kernel<FlatDispatch> for "void ep::intranode::dispatch_kernel<(...)::FlatDispatch>(...)"."""
    name = demangled.replace("(anonymous namespace)", "anonymous")
    name = re.sub(r"\(.*", "", name)
    name = re.sub(r"\w+::", "", name)
    return re.sub(r"^void ", "", name)


def demangle(kernels):
    if not kernels or not shutil.which("c++filt"):
        return
    done = subprocess.run(["c++filt"], input="\n".join(kernel.mangled for kernel in kernels),
                          capture_output=True, text=True, check=True)
    for kernel, name in zip(kernels, done.stdout.splitlines()):
        kernel.name = short_name(name)


def findings(kernels, allowed):
    for kernel in kernels:
        if not kernel.is_clean and kernel.name not in allowed:
            yield (f"{kernel.name} on {kernel.arch}: {kernel.stack} bytes of stack, spills store "
                   f"{kernel.spill_stores} and load {kernel.spill_loads} bytes; expected none")
    for name in sorted(allowed):
        uses = [kernel for kernel in kernels if kernel.name == name]
        if uses and all(kernel.is_clean for kernel in uses):
            yield f"{name} is in the allow-list of check_ptxas.py but needs no exception"


def report_findings(kernels):
    """Prints what is wrong; returns the exit status."""
    found = list(findings(kernels, ALLOWED))
    for finding in found:
        print(f"check_ptxas: {finding}", file=sys.stderr)
    return 1 if found else 0


def object_of(command):
    """The file after -o, None if the command compiles nothing."""
    return pathlib.Path(command[command.index("-o") + 1]) if "-o" in command[:-1] else None


def compile_and_check(command):
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False)
    for line in done.stderr.splitlines():
        if not INFO.match(line):
            print(line, file=sys.stderr)
    if done.returncode != 0:
        return done.returncode
    kernels = parse(done.stderr)
    demangle(kernels)
    target = object_of(command)
    if kernels and target:
        table = target.with_name(target.name + ".ptxas.txt")
        table.write_text("".join(kernel.row() + "\n" for kernel in kernels), encoding="utf-8")
    return report_findings(kernels)


def check_logs(paths):
    kernels = parse("\n".join(path.read_text(encoding="utf-8") for path in paths))
    demangle(kernels)
    for kernel in kernels:
        print(kernel.row())
    return report_findings(kernels)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--log", type=pathlib.Path, nargs="+", help="saved outputs of ptxas -v")
    parser.add_argument("command", nargs="*", help="the compiler and its arguments, after --")
    args = parser.parse_args()
    if bool(args.log) == bool(args.command):
        parser.error("give either --log or a command")
    sys.exit(check_logs(args.log) if args.log else compile_and_check(args.command))


if __name__ == "__main__":
    main()
