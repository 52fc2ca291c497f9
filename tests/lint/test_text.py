#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests of tools/check_text.py."""

import unittest

from planted_tree import CheckTest

SPDX = "// SPDX-License-Identifier: Apache-2.0\n"


class CheckTextTest(CheckTest):
    script = "check_text.py"

    def test_clean_tree_passes(self):
        self.write("src/a.h", SPDX + "#pragma once\n// TODO(#12): later.\n")
        self.write("src/a-inl.h", SPDX)
        self.write("src/CMakeLists.txt", "# SPDX-License-Identifier: Apache-2.0\nadd(SOURCES\n  host/a.cc\n  b.cc)\n")
        self.write("src/host/a.cc", SPDX)
        self.write("src/b.cc", SPDX)
        self.write("examples/CMakeLists.txt", "# SPDX-License-Identifier: Apache-2.0\nep_add_example(c)\n")
        self.write("examples/c.cc", SPDX)
        self.write("README.md", "Ein \u00dcberblick\n")
        self.write("bench/data/text.txt", "as it was  \nwritten")
        self.assert_clean()

    def test_trailing_space_and_missing_newline_are_found(self):
        self.write("README.md", "one \ntwo")
        self.assert_finds("README.md:1: trailing space", "README.md:2: file does not end")

    def test_non_ascii_source_is_found(self):
        self.write("tools/a.sh", "# SPDX-License-Identifier: Apache-2.0\n# 3 \u2264 4\n")
        self.assert_finds("tools/a.sh:2: non-ASCII character U+2264 in column 5")

    def test_large_file_is_found(self):
        self.write("a.bin", "\0" * 500_001)
        self.assert_finds("a.bin:1: file of 500001 bytes")

    def test_file_headers_are_checked(self):
        self.write("src/a.h", "int f();\n")
        self.assert_finds("src/a.h:1: header without #pragma once", "src/a.h:1: the first lines lack")

    def test_unowned_note_and_using_namespace_are_found(self):
        self.write("src/a.h", SPDX + "#pragma once\n// TODO: later\nusing namespace std;\n")
        self.assert_finds("src/a.h:3: note without an issue", "src/a.h:4: using namespace")

    def test_unlisted_source_is_found(self):
        self.write("src/CMakeLists.txt", "# SPDX-License-Identifier: Apache-2.0\nadd(SOURCES a.cc)\n")
        self.write("src/aa.cc", SPDX)
        self.write("include/ep/a.h", SPDX + "#pragma once\n")
        self.assert_finds("include/ep/a.h:1: no CMakeLists.txt lists", "src/aa.cc:1: no CMakeLists.txt lists")


if __name__ == "__main__":
    unittest.main()
