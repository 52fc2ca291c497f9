# SPDX-License-Identifier: Apache-2.0
# Generates ep_build_info.h (commit and version) at build time, rewritten only when it changes.

set(EP_GENERATED_DIR "${PROJECT_BINARY_DIR}/generated")

find_package(Git QUIET)
add_custom_target(ep_build_info
  COMMAND ${CMAKE_COMMAND}
    "-DEP_SOURCE_DIR=${PROJECT_SOURCE_DIR}"
    "-DEP_VERSION=${PROJECT_VERSION}"
    "-DEP_GIT=${GIT_EXECUTABLE}"
    "-DEP_OUTPUT=${EP_GENERATED_DIR}/ep_build_info.h"
    -P "${PROJECT_SOURCE_DIR}/cmake/EpWriteBuildInfo.cmake"
  BYPRODUCTS "${EP_GENERATED_DIR}/ep_build_info.h"
  COMMENT "Checking the commit"
  VERBATIM)
