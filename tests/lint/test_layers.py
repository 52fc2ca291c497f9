#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests of tools/check_layers.py."""

import unittest

from planted_tree import CheckTest


class CheckLayersTest(CheckTest):
    script = "check_layers.py"

    def test_clean_tree_passes(self):
        self.write("include/ep/a.h", "#include <ep/b.h>\n#include <string_view>\n")
        self.write("include/ep/device/a.h", "#include <cuda_runtime.h>\n")
        self.write("src/base/env.cc", 'auto* x = std::getenv("EP_LOG");\n#include "ep_build_info.h"\n')
        self.write("src/layout/a.h", '#include "base/log.h"\n#include <ep/a.h>\n')
        self.write("src/primitives/memory.cuh", 'asm volatile("fence;");\n#ifdef __CUDA_ARCH__\n#endif\n')
        self.write("src/primitives/a.cc", '#include "primitives/a.h"\n#include <hwy/highway.h>\n')
        self.write("src/intranode/cuda.cu", "#include <cuda_runtime.h>\n")
        self.write("src/fabric/ofi/a.cc", "#include <rdma/fabric.h>\n")
        self.write("src/fabric/nccl/a.cc", "#include <nccl.h>\n#include <cuda_runtime.h>\n")
        self.write("src/fabric/bootstrap/nccl.cc", "#include <nccl.h>\n")
        self.write("src/core/a.cc", '#include "intranode/host.h"\n')
        self.write("python/csrc/ops.cc", "#include <torch/csrc/stable/library.h>\n")
        self.write("bench/a.cc", '#include "bench/a.h"\n#include "base/env.h"\n')
        self.write("tests/a.cc", '#include "bench/a.h"\n#include "core/group_state.h"\n')
        self.assert_clean()

    def test_include_of_a_higher_layer_is_found(self):
        self.write("src/layout/a.h", '#include "base/log.h"\n#include "fabric/host/arena.h"\n')
        self.assert_finds('src/layout/a.h:2: layout includes "fabric/host/arena.h": fabric stands above')

    def test_paths_do_not_include_each_other(self):
        self.write("src/ll/a.h", '#include "intranode/a.h"\n')
        self.assert_finds('src/ll/a.h:1: ll includes "intranode/a.h": ll and intranode stand side by side')

    def test_bench_does_not_include_tests(self):
        self.write("bench/a.cc", '#include "tests/oracle.h"\n')
        self.assert_finds("bench/a.cc:1: ")

    def test_relative_include_is_found(self):
        self.write("src/base/a.cc", '#include "a.h"\n#include "../base/a.h"\n')
        self.assert_finds('src/base/a.cc:1: "a.h" is not written', 'src/base/a.cc:2: "../base/a.h" is not')

    def test_public_header_sees_only_std_and_ep(self):
        self.write("include/ep/a.h", '#include <sys/mman.h>\n#include "base/log.h"\n#include <cuda.h>\n')
        self.assert_finds("include/ep/a.h:1: public header includes <sys/mman.h>",
                          'include/ep/a.h:2: public includes "base/log.h"',
                          "include/ep/a.h:3: <cuda.h>: CUDA")

    def test_example_sees_no_private_header(self):
        self.write("examples/a.cc", '#include "core/group_state.h"\n')
        self.assert_finds("examples/a.cc:1: examples includes")

    def test_third_parties_stay_in_their_folders(self):
        self.write("src/fabric/host/a.cc", "#include <nccl.h>\n#include <rdma/fabric.h>\n")
        self.write("src/core/a.cc", "#include <torch/torch.h>\n#include <nccl_device/gin.h>\n")
        self.write("src/primitives/a.h", "#include <cuda_runtime.h>\n")
        self.assert_finds("src/core/a.cc:1: <torch/torch.h>: torch", "src/core/a.cc:2: <nccl_device/gin.h>: NCCL",
                          "src/fabric/host/a.cc:1: <nccl.h>: NCCL",
                          "src/fabric/host/a.cc:2: <rdma/fabric.h>: libfabric",
                          "src/primitives/a.h:1: <cuda_runtime.h>: CUDA")

    def test_low_level_code_stays_in_its_files(self):
        self.write("src/primitives/a.h", 'asm volatile("pause");\n#if __CUDA_ARCH__ >= 900\n#endif\n')
        self.write("src/core/a.cc", 'auto* x = ::getenv("X");\n')
        self.assert_finds("src/core/a.cc:1: environment read", "src/primitives/a.h:1: inline assembly",
                          "src/primitives/a.h:2: __CUDA_ARCH__")

    def test_comments_and_literals_are_not_code(self):
        self.write("src/core/a.cc", '// getenv("X")\n/* #include "tests/a.h"\n*/\nauto s = "getenv(";\n')
        self.assert_clean()


if __name__ == "__main__":
    unittest.main()
