#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests of tools/check_function_size.py."""

import unittest

from planted_tree import CheckTest


def function(head, num_lines):
    """A function of exactly num_lines from its name to its closing brace."""
    return head + " {\n" + "  step();\n" * (num_lines - 2) + "}\n"


class CheckFunctionSizeTest(CheckTest):
    script = "check_function_size.py"

    def test_functions_at_the_limits_pass(self):
        self.write("src/core/a.cc", function("void f()", 60))
        self.write("src/intranode/a_roles.h",
                   function("template <Executor Exec, Coop G>\nEP_HOST_DEVICE void send_role(G group)", 60)
                   + function("EP_HOST_DEVICE void write_row(int row)", 30))
        self.write("src/core/macro.cc", "DEFINE_ALL(A, b, c, d, e, f, g)\n" + function("void f()", 60))
        self.write("src/intranode/cuda.cu",
                   function("__global__ void __launch_bounds__(128, 1) k(const __grid_constant__ P p)", 25))
        self.write("tests/a_test.cc", function("TEST(Suite, Name)", 50))
        self.assert_clean()

    def test_each_kind_has_its_own_limit(self):
        self.write("src/core/a.cc", function("void f()", 61))
        self.write("src/intranode/a_roles.h",
                   function("EP_HOST_DEVICE void send_role(int group)", 61)
                   + function("EP_HOST_DEVICE void write_row(int row)", 31))
        self.write("src/intranode/cuda.cu",
                   function("__global__ void __launch_bounds__(128, 1)\nk(const __grid_constant__ P p)", 26))
        self.write("tests/a_test.cc", function("TEST_F(Suite, Name)", 51)
                   + function("RC_GTEST_PROP(Suite, Prop, (int a))", 51))
        self.assert_finds("src/core/a.cc:1: function f has 61 lines, at most 60",
                          "src/intranode/a_roles.h:1: role send_role has 61 lines",
                          "src/intranode/a_roles.h:62: step write_row has 31 lines, at most 30",
                          "src/intranode/cuda.cu:2: kernel k has 26 lines, at most 25",
                          "tests/a_test.cc:1: test body TEST_F(Suite,Name) has 51 lines, at most 50",
                          "tests/a_test.cc:52: test body Prop(int a) has 51 lines")

    def test_deep_nesting_is_found_but_plain_braces_do_not_count(self):
        self.write("src/core/a.cc", "void f() {\n if (a) { for (;;) { while (b) { do { auto l = [&] { g({{1}}); };"
                   " } while (c); } } }\n}\n")
        self.assert_clean()
        self.write("src/core/b.cc", "void f() {\n if (a) { for (auto& x : y) { while (b) { switch (c) {\n"
                   " default: if constexpr (d) { g(); } else { h(); } } } } }\n}\n")
        self.assert_finds("src/core/b.cc:1: f nests 5 deep, at most 4")

    def test_seventh_parameter_is_found(self):
        self.write("src/core/a.cc", "int f(std::map<int, int> a, int b, int c, int d, int e, int (*g)(int, int))"
                   " {\n  return 0;\n}\n")
        self.assert_clean()
        self.write("src/core/b.cc", "int f(int a, int b, int c, int d, int e, int g, int h = {})"
                   " {\n  return 0;\n}\n")
        self.assert_finds("src/core/b.cc:1: f has 7 parameters, at most 6")

    def test_long_files_are_found(self):
        self.write("src/core/a.cc", "\n" * 501)
        self.write("src/core/a.h", "\n" * 301)
        self.assert_finds("src/core/a.cc:501: file has 501 lines, at most 500",
                          "src/core/a.h:301: file has 301 lines, at most 300")

    def test_report_holds_the_targets(self):
        self.write("src/core/a.cc", "".join(function(f"void f{i}()", 10) for i in range(9)))
        self.write("tests/a_test.cc", function("TEST(Suite, Name)", 40))
        done = self.run_check("--report")
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertIn("9 functions  median 10  p90 10  longest 10", done.stdout)

    def test_report_fails_above_a_target(self):
        for path, num_lines in (("median.cc", 11), ("longest.cc", 81)):
            with self.subTest(path):
                self.write(f"src/core/{path}", function("void f()", num_lines))
                self.assertEqual(self.run_check("--report").returncode, 1)
                (self.root / "src/core" / path).unlink()


if __name__ == "__main__":
    unittest.main()
