#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests of ./dev with stand-ins for the programs that it calls."""

import os
import shutil
import subprocess
import unittest

from planted_tree import ROOT, CheckTest

UNPRIVILEGED_UID = 65534


class DevTest(CheckTest):
    def setUp(self):
        super().setUp()
        shutil.copy(ROOT / "dev", self.root)
        self.root.chmod(0o777)
        self.stand_in("sudo", "exit 1")

    def stand_in(self, name, body):
        self.write(f"bin/{name}", f"#!/bin/bash\n{body}\n")
        (self.root / "bin" / name).chmod(0o755)

    def dev(self, *arguments):
        as_other = {"user": UNPRIVILEGED_UID} if os.geteuid() == 0 else {}
        environment = {**os.environ, "PATH": f"{self.root}/bin:{os.environ['PATH']}"}
        return subprocess.run(["bash", str(self.root / "dev"), *arguments], capture_output=True, text=True,
                              check=False, env=environment, **as_other)

    def test_help_and_unknown_task(self):
        done = self.dev("help")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        done = self.dev("tset")
        self.assertEqual(done.returncode, 1)
        self.assertIn("no task 'tset'", done.stderr)

    def test_missing_packages_are_named_where_nothing_may_be_installed(self):
        self.stand_in("dpkg-query", '[[ $* == *libhwy-dev* || $* == *cmake* ]] || echo installed')
        self.stand_in("apt-get", f"touch {self.root}/called")
        for task in ("demo", "test"):
            done = self.dev(task)
            self.assertEqual(done.returncode, 1)
            self.assertIn("apt-get install --no-install-recommends cmake libhwy-dev\n", done.stderr + "\n")
        self.assertFalse((self.root / "called").exists())

    def test_missing_packages_are_installed_with_sudo(self):
        self.stand_in("dpkg-query", f'[[ $* != *g++* || -e {self.root}/there ]] && echo installed')
        self.stand_in("sudo", 'shift; "$@"')
        self.stand_in("apt-get", f'[[ $1 == update || $* == *" g++" ]] || exit 9\ntouch {self.root}/there')
        done = self.dev("build")
        self.assertTrue((self.root / "there").exists(), done.stdout + done.stderr)

    def test_failing_step_ends_the_task_with_its_output(self):
        self.stand_in("dpkg-query", "echo installed")
        self.stand_in("cmake", 'echo "cannot configure $*"; exit 3')
        done = self.dev("test")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("FAIL configure host", done.stdout)
        self.assertIn("cannot configure --preset host", done.stdout)

    def test_warnings_are_errors_with_the_compiler_of_ci_only(self):
        self.stand_in("dpkg-query", "echo installed")
        self.stand_in("cmake", 'echo "cmake $*"; exit 3')
        for version, werror in (("12", "ON"), ("13", "OFF")):
            self.stand_in("c++", f"echo {version}")
            self.assertIn(f"-DEP_WERROR={werror}", self.dev("build").stdout)

    def test_failing_test_fails_the_task(self):
        self.stand_in("dpkg-query", "echo installed")
        self.stand_in("cmake", "exit 0")
        self.stand_in("ctest", 'echo "ctest $*"; exit 8')
        for task, preset in (("test", "host"), ("asan", "host-asan"), ("tsan", "host-tsan"), ("soak", "soak")):
            done = self.dev(task, "-R", "name")
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(f"ctest --preset {preset} -R name", done.stdout)


if __name__ == "__main__":
    unittest.main()
