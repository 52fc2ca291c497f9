#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests of tools/format.sh."""

import shutil
import subprocess
import unittest

from planted_tree import ROOT, CheckTest

FORMATTED = "int f(const int& a) { return a; }\n"


class FormatTest(CheckTest):
    def setUp(self):
        super().setUp()
        (self.root / "tools").mkdir()
        shutil.copy(ROOT / "tools/format.sh", self.root / "tools")
        shutil.copy(ROOT / ".clang-format", self.root)
        self.write("src/clean.cc", FORMATTED)

    def format(self, *arguments):
        return subprocess.run([self.root / "tools/format.sh", *arguments], capture_output=True, text=True,
                              check=False)

    def test_clean_tree_passes(self):
        done = self.format("--check")
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_misformatted_source_is_found_and_mended(self):
        self.write("src/intranode/a.cu", "int f( int const &a ){return a;}\n")
        done = self.format("--check")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("src/intranode/a.cu:1", done.stderr)
        self.assertEqual(self.format().returncode, 0)
        self.assertEqual((self.root / "src/intranode/a.cu").read_text(encoding="utf-8"), FORMATTED)
        self.assertEqual(self.format("--check").returncode, 0)


if __name__ == "__main__":
    unittest.main()
