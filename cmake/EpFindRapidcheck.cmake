# SPDX-License-Identifier: Apache-2.0
# Finds RapidCheck as the target rapidcheck: by its CMake files, or by header and archive where a
# distribution ships it without them.

find_package(rapidcheck CONFIG QUIET)
if(TARGET rapidcheck)
  return()
endif()

find_path(RAPIDCHECK_INCLUDE_DIR rapidcheck.h)
find_library(RAPIDCHECK_LIBRARY rapidcheck)
if(NOT RAPIDCHECK_INCLUDE_DIR OR NOT RAPIDCHECK_LIBRARY)
  message(FATAL_ERROR "RapidCheck not found (Debian and Ubuntu: librapidcheck-dev)")
endif()
add_library(rapidcheck UNKNOWN IMPORTED)
set_target_properties(rapidcheck PROPERTIES
  IMPORTED_LOCATION "${RAPIDCHECK_LIBRARY}"
  INTERFACE_INCLUDE_DIRECTORIES "${RAPIDCHECK_INCLUDE_DIR}")
