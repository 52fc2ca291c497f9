#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests of tools/executor_share.py."""

import unittest

from planted_tree import CheckTest

STEP = "  Memory::store(word, value);\n"
ROLE = "template <class Exec>\nvoid role() {\n" + 30 * STEP + "}\n"
FORK = ("template <class Exec>\nvoid fork() {\n  if constexpr (Exec::kHasTma) {\n" + 2 * STEP +
        "  } else {\n" + STEP + "  }\n}\n")


class ExecutorShareTest(CheckTest):
    script = "executor_share.py"

    def test_roles_with_a_launch_pass(self):
        self.write("src/intranode/a_roles.h", ROLE)
        self.write("src/intranode/cuda.cu", "void launch() { kernel<<<1, 1>>>(); }\n")
        self.write("src/primitives/a.h", 9 * FORK)
        self.assert_clean()

    def test_fork_of_a_role_is_found(self):
        self.write("src/intranode/a_roles.h", ROLE + FORK)
        self.assert_finds("src/intranode/a_roles.h:36: 6 lines written for one executor")

    def test_requirement_on_the_executor_is_found(self):
        self.write("src/ll/a_roles.h",
                   ROLE + "template <class Exec>\n  requires(Exec::kIsHost)\nvoid f() {\n" + 9 * STEP + "}\n")
        self.assert_finds("src/ll/a_roles.h:35: 12 lines written for one executor")

    def test_protocol_in_a_launch_file_is_found(self):
        self.write("src/intranode/a_roles.h", ROLE)
        self.write("src/intranode/host.cc", 9 * STEP)
        self.assert_finds("src/intranode/host.cc:1: 9 lines written for one executor")

    def test_small_fork_passes(self):
        self.write("src/intranode/a_roles.h", 9 * ROLE + FORK)
        self.assert_clean()


if __name__ == "__main__":
    unittest.main()
