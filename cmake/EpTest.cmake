# SPDX-License-Identifier: Apache-2.0
# Helpers for tests/CMakeLists.txt.

set(EP_TEST_LABELS unit stress fault)

# Seconds on two cores; the presets multiply them for sanitizers and for full rounds.
set(EP_TEST_TIMEOUT_unit 120)
set(EP_TEST_TIMEOUT_stress 420)
set(EP_TEST_TIMEOUT_fault 120)
set(EP_TEST_TIMEOUT_FACTOR 1 CACHE STRING "Every test timeout is multiplied by this integer")

# ep_add_test(NAME name LABEL unit|stress|fault SOURCES file.cc ... [LIBRARIES target ...]
#             [DEPENDS target ...] [ARGS arg ...] [TIMEOUT seconds] [SERIAL])
# One GoogleTest executable and one ctest of that name. SERIAL: nothing else runs beside it.
function(ep_add_test)
  cmake_parse_arguments(PARSE_ARGV 0 arg "SERIAL" "NAME;LABEL;TIMEOUT"
    "SOURCES;LIBRARIES;DEPENDS;ARGS")
  if(NOT arg_LABEL IN_LIST EP_TEST_LABELS)
    message(FATAL_ERROR "ep_add_test(${arg_NAME}): label '${arg_LABEL}', expected ${EP_TEST_LABELS}")
  endif()
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT ${EP_TEST_TIMEOUT_${arg_LABEL}})
  endif()
  math(EXPR timeout "${arg_TIMEOUT} * ${EP_TEST_TIMEOUT_FACTOR}")

  add_executable(${arg_NAME} ${arg_SOURCES})
  ep_set_defaults(${arg_NAME})
  target_include_directories(${arg_NAME} PRIVATE "${PROJECT_SOURCE_DIR}")
  target_link_libraries(${arg_NAME} PRIVATE
    ep_internal ${arg_LIBRARIES} GTest::gtest GTest::gtest_main)
  if(arg_DEPENDS)
    add_dependencies(${arg_NAME} ${arg_DEPENDS})
  endif()
  add_test(NAME ${arg_NAME} COMMAND ${arg_NAME} ${arg_ARGS})
  set_tests_properties(${arg_NAME} PROPERTIES
    LABELS ${arg_LABEL} TIMEOUT ${timeout} RUN_SERIAL "${arg_SERIAL}")
endfunction()

# ep_add_script_test(NAME name LABEL label [TIMEOUT seconds] COMMAND ...)
function(ep_add_script_test)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "NAME;LABEL;TIMEOUT" "COMMAND")
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 120)
  endif()
  add_test(NAME ${arg_NAME} COMMAND ${arg_COMMAND})
  set_tests_properties(${arg_NAME} PROPERTIES LABELS ${arg_LABEL} TIMEOUT ${arg_TIMEOUT})
endfunction()
