#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests of tools/check_sync_tags.py."""

import unittest

from planted_tree import CheckTest

PAIR = """void f() {
  memory::store_release_sys(tail, next);  // [sync:slot-tail] release: slot payload.
}
void g() {
  // The payload of the slot.
  // [sync:slot-tail] acquire.
  const auto seen = memory::load_acquire_sys(tail);
}
"""
MODEL = "# Memory model\n\n| tag | publishes |\n|---|---|\n| `slot-tail` | payload |\n"


class CheckSyncTagsTest(CheckTest):
    script = "check_sync_tags.py"

    def setUp(self):
        super().setUp()
        self.write("src/primitives/a.h", PAIR)
        self.write("docs/memory_model.md", MODEL)

    def test_clean_tree_passes(self):
        self.write("src/primitives/memory.h", "void f() { return store_release_sys(a, b); }\n")
        self.assert_clean()

    def test_tag_at_the_end_of_a_wrapped_statement_counts(self):
        self.write("src/core/a.cc", "void f() {\n  const bool done = await_words(\n      first, [&] {\n"
                   "        return memory::load_acquire_sys(x) == y; });  // [sync:slot-tail] acquire\n}\n")
        self.assert_clean()

    def test_untagged_release_is_found(self):
        self.write("src/core/a.cc", "void f() {\n  // No tag here.\n  memory::add_release_sys(x, 1);\n}\n")
        self.assert_finds("src/core/a.cc:3: add_release_sys carries no")

    def test_untagged_fence_and_standard_order_are_found(self):
        self.write("src/core/a.cc", "void f() {\n  fence_async_proxy();\n"
                   "  x.load(std::memory_order_acquire);\n}\n")
        self.assert_finds("src/core/a.cc:2: fence_async_proxy carries",
                          "src/core/a.cc:3: memory_order_acquire carries")

    def test_declaration_needs_no_tag_but_returned_call_does(self):
        self.write("src/core/a.h", "struct A {\n  void fence_acquired() const {}\n  T* load_acquire_all();\n"
                   "  int f() { return load_acquire_all(); }\n};\n")
        self.assert_finds("src/core/a.h:4: load_acquire_all carries no")

    def test_lone_half_is_found(self):
        self.write("src/core/a.cc", "void f() {\n  store_release_sys(x, 1);  // [sync:lone]\n}\n")
        self.write("docs/memory_model.md", MODEL + "| `lone` | x |\n")
        self.assert_finds("src/core/a.cc:2: [sync:lone] has no acquire half")

    def test_tag_of_the_line_above_belongs_to_its_own_line(self):
        self.write("src/core/a.cc", "void f() {\n  store_release_sys(x, 1);  // [sync:slot-tail]\n"
                   "  store_release_sys(y, 1);\n}\n")
        self.assert_finds("src/core/a.cc:3: store_release_sys carries no")

    def test_tag_beside_no_ordered_access_is_found(self):
        self.write("src/core/a.cc", "void f() {\n  g();  // [sync:slot-tail]\n}\n")
        self.assert_finds("src/core/a.cc:2: [sync:slot-tail] stands beside neither")

    def test_missing_and_superfluous_rows_are_found(self):
        self.write("docs/memory_model.md", "| `other` | x |\n| `other` | x |\n")
        self.assert_finds("docs/memory_model.md:1: row `other` has no", "docs/memory_model.md:2: second row",
                          "src/primitives/a.h:2: [sync:slot-tail] has no row")

    def test_malformed_name_is_found(self):
        self.write("src/core/a.cc", "void f() {\n  store_release_sys(x, 1);  // [sync:Slot_Tail]\n}\n")
        self.assert_finds("src/core/a.cc:2: tag 'Slot_Tail' is not")


if __name__ == "__main__":
    unittest.main()
