#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests of cmake/EpHeaderSelfTest.cmake: a header that leans on the includes of another is found."""

import subprocess
import unittest

from planted_tree import ROOT, CheckTest

PROJECT = f"""cmake_minimum_required(VERSION 3.25)
project(Planted LANGUAGES CXX)
list(APPEND CMAKE_MODULE_PATH "{ROOT}/cmake")
set(EP_BUILD_TESTS ON)
set(EP_BUILD_BENCH OFF)
set(EP_GENERATED_DIR "${{PROJECT_BINARY_DIR}}/generated")
include(EpDependencies)
include(EpTarget)
add_custom_target(ep_build_info)
include(EpHeaderSelfTest)
"""
GOOD = "#pragma once\n#include <string>\nstd::string f();\n"


class HeaderSelfTest(CheckTest):
    def setUp(self):
        super().setUp()
        self.write("CMakeLists.txt", PROJECT)
        self.write("include/ep/a.h", GOOD)
        self.write("src/base/a.h", '#pragma once\n#include <ep/a.h>\ninline std::string g() { return f(); }\n')

        self.write("src/base/part-inl.h", "struct Part { std::string name; };\n")

    def build(self):
        configure = ["cmake", "-S", str(self.root), "-B", str(self.root / "build"), "-G", "Ninja"]
        subprocess.run(configure, capture_output=True, text=True, check=True)
        return subprocess.run(
            ["cmake", "--build", str(self.root / "build"), "--target", "ep_header_self_test"],
            capture_output=True, text=True, check=False)

    def test_clean_tree_passes(self):
        done = self.build()
        self.assertEqual(done.returncode, 0, done.stdout)

    def test_header_that_leans_on_another_is_found(self):
        self.write("src/base/leaning.h", "#pragma once\nstd::string leaning();\n")
        done = self.build()
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("base/leaning.h", done.stdout)

    def test_header_without_guard_is_found(self):
        self.write("tests/unguarded.h", "struct Unguarded {};\n")
        done = self.build()
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("tests/unguarded.h", done.stdout)


if __name__ == "__main__":
    unittest.main()
