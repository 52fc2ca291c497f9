#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests of tools/check_ptxas.py, with a compiler that only prints what ptxas would."""

import pathlib
import subprocess
import sys
import unittest

from planted_tree import ROOT, CheckTest

sys.path.insert(0, str(ROOT / "tools"))
import check_ptxas  # pylint: disable=wrong-import-position


def ptxas_output(name, stack, stores, loads, arch="sm_90a"):
    return (f"ptxas info    : 0 bytes gmem\n"
            f"ptxas info    : Compiling entry function '{name}' for '{arch}'\n"
            f"ptxas info    : Function properties for {name}\n"
            f"    {stack} bytes stack frame, {stores} bytes spill stores, {loads} bytes spill loads\n"
            f"ptxas info    : Used 96 registers, used 0 barriers\n"
            f"ptxas info    : Compile time = 31.079 ms\n")


class CheckPtxasTest(CheckTest):
    def compile(self, output, status=0):
        """Runs the check over a compiler that prints `output` and writes the object."""
        self.write("output", output)
        self.write("compiler.py", "import sys\nsys.stderr.write(open(sys.argv[1]).read())\n"
                   f"open(sys.argv[3], 'w').close()\nsys.exit({status})\n")
        self.object = self.root / "a.o"
        return subprocess.run(
            [sys.executable, str(ROOT / "tools/check_ptxas.py"), "--", sys.executable,
             str(self.root / "compiler.py"), str(self.root / "output"), "-o", str(self.object)],
            capture_output=True, text=True, check=False)

    def test_clean_kernel_passes_silently_and_leaves_a_table(self):
        done = self.compile(ptxas_output("kernel", 0, 0, 0))
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))
        table = pathlib.Path(str(self.object) + ".ptxas.txt").read_text(encoding="utf-8")
        self.assertRegex(table, r"^kernel +sm_90a +96 registers +0 B stack +0 B stored, +0 B loaded")

    def test_spill_is_found(self):
        done = self.compile(ptxas_output("clean", 0, 0, 0) + ptxas_output("spilling", 80, 200, 208))
        self.assertEqual(done.returncode, 1)
        self.assertEqual(done.stderr, "check_ptxas: spilling on sm_90a: 80 bytes of stack, spills store 200 and "
                         "load 208 bytes; expected none\n")

    def test_stack_frame_without_spill_is_found(self):
        done = self.compile(ptxas_output("framed", 16, 0, 0))
        self.assertEqual(done.returncode, 1)
        self.assertIn("framed on sm_90a: 16 bytes of stack", done.stderr)

    def test_each_architecture_counts(self):
        done = self.compile(ptxas_output("kernel", 0, 0, 0) + ptxas_output("kernel", 8, 4, 4, arch="sm_80"))
        self.assertEqual(done.returncode, 1)
        self.assertIn("kernel on sm_80", done.stderr)

    def test_status_and_messages_of_the_compiler_are_kept(self):
        done = self.compile("a.cu(3): error: identifier is undefined\n", status=2)
        self.assertEqual((done.returncode, done.stderr), (2, "a.cu(3): error: identifier is undefined\n"))
        done = self.compile("a.cu(3): warning: unused\n" + ptxas_output("kernel", 0, 0, 0))
        self.assertEqual((done.returncode, done.stderr), (0, "a.cu(3): warning: unused\n"))

    def test_saved_output_is_read(self):
        self.write("log", ptxas_output("kernel", 8, 4, 4))
        done = subprocess.run([sys.executable, str(ROOT / "tools/check_ptxas.py"), "--log", str(self.root / "log")],
                              capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn("96 registers", done.stdout)

    def test_allowed_kernel_passes_until_it_is_clean(self):
        spilling = check_ptxas.parse(ptxas_output("kernel", 8, 4, 4))
        self.assertEqual(list(check_ptxas.findings(spilling, {"kernel": "reason"})), [])
        clean = check_ptxas.parse(ptxas_output("kernel", 0, 0, 0))
        self.assertEqual(list(check_ptxas.findings(clean, {"kernel": "reason"})),
                         ["kernel is in the allow-list of check_ptxas.py but needs no exception"])
        self.assertEqual(list(check_ptxas.findings(clean, {"kernel in another file": "reason"})), [])

    def test_names_are_short(self):
        self.assertEqual(check_ptxas.short_name(
            "void ep::intranode::combine_kernel<ep::intranode::(anonymous namespace)::Pull>(ep::P, int)"),
                         "combine_kernel<Pull>")


if __name__ == "__main__":
    unittest.main()
