# SPDX-License-Identifier: Apache-2.0
# Finds the third parties; all are Debian and Ubuntu packages (./dev lists them) and become SYSTEM targets.

set(THREADS_PREFER_PTHREAD_FLAG ON)
find_package(Threads REQUIRED)
find_package(hwy 1.0.3 CONFIG REQUIRED)
find_package(Boost 1.74 CONFIG REQUIRED COMPONENTS context)

# Headers only: the library is looked up at run time, and a host without it runs everything else.
if(EP_WITH_OFI)
  if(NOT EP_LIBFABRIC_INCLUDE_DIR)
    message(FATAL_ERROR "EP_WITH_OFI: rdma/fabric.h not found (libfabric-dev)")
  endif()
  add_library(ep_libfabric_headers INTERFACE IMPORTED)
  target_include_directories(ep_libfabric_headers INTERFACE "${EP_LIBFABRIC_INCLUDE_DIR}")
endif()

if(EP_BUILD_BENCH)
  find_package(CLI11 2.1 CONFIG REQUIRED)
  find_package(nlohmann_json 3.11 CONFIG REQUIRED)
  find_package(benchmark 1.7 CONFIG REQUIRED)
endif()

if(EP_BUILD_TESTS)
  find_package(GTest 1.12 REQUIRED)
  include(EpFindRapidcheck)
endif()
