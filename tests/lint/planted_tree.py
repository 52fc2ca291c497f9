# SPDX-License-Identifier: Apache-2.0
"""A temporary checkout that a check of tools/ is run on."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]


class CheckTest(unittest.TestCase):
    """Base of the tests of one check: `script` names it."""

    script = ""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)

    def write(self, path, text):
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")

    def run_check(self, *arguments):
        return subprocess.run(
            [sys.executable, str(ROOT / "tools" / self.script), "--root", str(self.root), *arguments],
            capture_output=True, text=True, check=False)

    def assert_clean(self, *arguments):
        done = self.run_check(*arguments)
        self.assertEqual((done.returncode, done.stderr), (0, ""), done.stdout)

    def assert_finds(self, *expected):
        """Exactly these findings, each given as the start of its "file:line: reason" line."""
        done = self.run_check()
        lines = done.stdout.splitlines()
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertEqual(len(lines), len(expected), done.stdout)
        for line, start in zip(lines, sorted(expected)):
            self.assertTrue(line.startswith(start), f"{line!r} does not start with {start!r}")
