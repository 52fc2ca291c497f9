#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests of .clang-tidy: names that break the style, and other planted violations, are errors."""

import subprocess
import unittest

from planted_tree import ROOT, CheckTest

CLEAN = """#include <source_location>
namespace ep::base {
enum class Role { kSend };
constexpr int kLimit = 3;
class Ring {
 public:
  explicit Ring(int num_slots) : num_slots_(num_slots) {}
  int free_slots() const { return num_slots_ < kLimit ? num_slots_ : kLimit; }

 private:
  int num_slots_;
};
int line_of(const std::source_location& place) { return static_cast<int>(place.line()); }
}  // namespace ep::base
"""


class TidyTest(CheckTest):
    def tidy(self, text):
        self.write("a.cc", text)
        return subprocess.run(
            ["clang-tidy-16", f"--config-file={ROOT}/.clang-tidy", "--quiet", str(self.root / "a.cc"),
             "--", "-std=c++20"], capture_output=True, text=True, check=False)

    def test_clean_source_passes(self):
        done = self.tidy(CLEAN)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_violations_are_errors(self):
        plants = {
            "int freeSlots();": "readability-identifier-naming",
            "constexpr int limit = 3;": "readability-identifier-naming",
            "class ring_type {};": "readability-identifier-naming",
            "class A { public: int f() const; private: int rows; };": "readability-identifier-naming",
            "enum class Role { send };": "readability-identifier-naming",
            "struct A { A(int x); };": "google-explicit-constructor",
            "int* f() { return 0; }": "modernize-use-nullptr",
            "typedef int Count;": "modernize-use-using",
            "int f(int a, int b, int c, int d, int e, int g, int h) { return a; }": "readability-function-size",
        }
        for text, check in plants.items():
            with self.subTest(text):
                done = self.tidy(text + "\n")
                self.assertNotEqual(done.returncode, 0, done.stdout)
                self.assertIn(check, done.stdout)


if __name__ == "__main__":
    unittest.main()
