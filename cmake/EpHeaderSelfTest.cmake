# SPDX-License-Identifier: Apache-2.0
# The target ep_header_self_test compiles every header alone, twice included: a header that leans on
# the includes of another, or lacks its guard, fails. The folders are globbed for this check only,
# so that no header escapes it. VERIFY_INTERFACE_HEADER_SETS is no help: it compiles .cuh as C++ and,
# told that they are CUDA, skips them silently.

# ep_add_header_self_test(target extension header...) compiles each header through a source of that extension.
function(ep_add_header_self_test target extension)
  set(sources)
  foreach(header IN LISTS ARGN)
    string(REGEX REPLACE "[^A-Za-z0-9]" "_" name "${header}")
    set(source "${PROJECT_BINARY_DIR}/header_self_test/${name}.${extension}")
    file(CONFIGURE OUTPUT "${source}" CONTENT "#include \"${header}\"\n#include \"${header}\"\n")
    list(APPEND sources "${source}")
  endforeach()
  if(NOT sources)
    return()
  endif()
  add_library(${target} OBJECT EXCLUDE_FROM_ALL ${sources})
  ep_set_defaults(${target})
  # The same headers, SYSTEM libraries and flags as the modules, but nothing of the product is built.
  target_include_directories(${target} PRIVATE
    "${PROJECT_SOURCE_DIR}/src" "${PROJECT_SOURCE_DIR}/include" "${PROJECT_SOURCE_DIR}"
    "${EP_GENERATED_DIR}")
  target_link_libraries(${target} PRIVATE ${EP_PRIVATE_LIBRARIES})
  add_dependencies(${target} ep_build_info)
endfunction()

# Headers below `folder` that match `pattern`, relative to `base`.
function(ep_glob_headers result base folder pattern)
  file(GLOB_RECURSE headers CONFIGURE_DEPENDS RELATIVE "${base}" "${base}/${folder}/${pattern}")
  set(${result} ${headers} PARENT_SCOPE)
endfunction()

ep_glob_headers(public_headers "${PROJECT_SOURCE_DIR}/include" ep "*.h")
# include/ep/device may include CUDA headers; those are checked with nvcc below.
list(FILTER public_headers EXCLUDE REGEX "^ep/device/")
ep_glob_headers(private_headers "${PROJECT_SOURCE_DIR}/src" . "*.h")
ep_glob_headers(outer_headers "${PROJECT_SOURCE_DIR}" tests "*.h")
ep_glob_headers(bench_headers "${PROJECT_SOURCE_DIR}" bench "*.h")
list(FILTER outer_headers EXCLUDE REGEX "^tests/package/")
# By Highway's convention an -inl.h is a part of one source file, re-included for each CPU target.
list(FILTER private_headers EXCLUDE REGEX "-inl\\.h$")
# All but the entry include those of libfabric.
if(NOT EP_WITH_OFI)
  list(FILTER private_headers EXCLUDE REGEX "^fabric/ofi/")
endif()
# These include CUDA headers, but for the one that others include; with nvcc, below.
list(FIND private_headers fabric/cuda/arena.h arena_at)
list(FILTER private_headers EXCLUDE REGEX "^fabric/cuda/")
if(arena_at GREATER_EQUAL 0)
  list(APPEND private_headers fabric/cuda/arena.h)
endif()

ep_add_header_self_test(ep_header_self_test cc
  ${public_headers} ${private_headers} ${outer_headers} ${bench_headers})
if(TARGET ep_header_self_test)
  target_link_libraries(ep_header_self_test PRIVATE GTest::gtest rapidcheck)
  if(EP_WITH_OFI)
    target_link_libraries(ep_header_self_test PRIVATE ep_libfabric_headers)
  endif()
  if(EP_BUILD_BENCH)
    target_link_libraries(ep_header_self_test PRIVATE
      CLI11::CLI11 nlohmann_json::nlohmann_json benchmark::benchmark)
  endif()
endif()

# With nvcc: the headers that plain g++ never sees, and those whose functions also run on the device.
if(EP_WITH_CUDA)
  ep_glob_headers(device_headers "${PROJECT_SOURCE_DIR}/src" . "*.cuh")
  ep_glob_headers(role_headers "${PROJECT_SOURCE_DIR}/src" . "*_roles.h")
  ep_glob_headers(cuda_fabric_headers "${PROJECT_SOURCE_DIR}/src" fabric/cuda "*.h")
  ep_glob_headers(layout_headers "${PROJECT_SOURCE_DIR}/src" layout "*.h")
  ep_glob_headers(public_device_headers "${PROJECT_SOURCE_DIR}/include" ep/device "*.h*")
  ep_add_header_self_test(ep_cuda_header_self_test cu
    ${device_headers} ${role_headers} ${cuda_fabric_headers} ${layout_headers} ${public_device_headers})
  if(TARGET ep_cuda_header_self_test)
    ep_set_cuda_defaults(ep_cuda_header_self_test)
  endif()
endif()
