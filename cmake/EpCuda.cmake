# SPDX-License-Identifier: Apache-2.0
# The CUDA part of ep: device objects, and the CUDA runtime that its host sources call.

include(CheckLanguage)
check_language(CUDA)
if(NOT CMAKE_CUDA_COMPILER)
  message(FATAL_ERROR "EP_WITH_CUDA is ON but nvcc was not found; set CUDACXX or PATH")
endif()
if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
  set(CMAKE_CUDA_ARCHITECTURES 90a-real)
endif()
enable_language(CUDA)
if(CMAKE_CUDA_COMPILER_VERSION VERSION_LESS 12.8)
  message(FATAL_ERROR "CUDA ${CMAKE_CUDA_COMPILER_VERSION} found, 12.8 or later is needed")
endif()

find_package(CUDAToolkit REQUIRED)

# CMake 3.25 does not know C++20 for nvcc. These must be set after enable_language, which resets them.
if(NOT DEFINED CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
endif()

# Programs find the libraries that scripts/gpu_pack.sh lays beside them.
set(CMAKE_BUILD_RPATH "$ORIGIN/lib;$ORIGIN/../lib;$ORIGIN/../../lib")

add_library(ep_cuda_options INTERFACE)
target_compile_options(ep_cuda_options INTERFACE
  $<$<COMPILE_LANGUAGE:CUDA>:-lineinfo>
  # Multiply, then add, as on the host: results are bitwise equal on every executor.
  $<$<COMPILE_LANGUAGE:CUDA>:--fmad=false>
  "$<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wall,-Wextra,-ffp-contract=off>")
if(EP_WERROR)
  target_compile_options(ep_cuda_options INTERFACE
    "$<$<COMPILE_LANGUAGE:CUDA>:SHELL:-Werror all-warnings>")
endif()

find_package(CUDAToolkit REQUIRED)
# EpConfig.cmake.in finds it again for a static ep.
list(APPEND EP_PRIVATE_LIBRARIES CUDA::cudart_static)

# All device objects: proves that the role sources compile for the GPU.
add_custom_target(ep_cuda)

set(EP_CUDA_CHECKED_ARCHITECTURES "" CACHE STRING
  "Architectures for which ep_cuda compiles the kernels of ep as well, into objects that nothing links")

# ep_check_cuda_architectures(target file.cu ...): the kernels of a module for each of them.
function(ep_check_cuda_architectures target)
  foreach(architecture IN LISTS EP_CUDA_CHECKED_ARCHITECTURES)
    string(REGEX REPLACE "-.*" "" number "${architecture}")
    set(checked ${target}_sm_${number})
    add_library(${checked} OBJECT EXCLUDE_FROM_ALL ${ARGN})
    ep_set_defaults(${checked})
    ep_set_cuda_defaults(${checked})
    ep_set_kernel_checks(${checked})
    set_target_properties(${checked} PROPERTIES CUDA_ARCHITECTURES ${architecture})
  endforeach()
endfunction()

function(ep_set_cuda_defaults target)
  target_link_libraries(${target} PRIVATE ep_cuda_options)
  target_include_directories(${target} PRIVATE
    "${PROJECT_SOURCE_DIR}/src" "${PROJECT_SOURCE_DIR}/include" "${EP_GENERATED_DIR}")
  set_target_properties(${target} PROPERTIES
    CUDA_STANDARD 20
    CUDA_STANDARD_REQUIRED ON
    CUDA_EXTENSIONS OFF
    CUDA_VISIBILITY_PRESET hidden
    POSITION_INDEPENDENT_CODE ON)
  add_dependencies(ep_cuda ${target})
endfunction()

# check_ptxas.py launches nvcc: a kernel with a stack frame or spills fails the build.
find_package(Python3 REQUIRED COMPONENTS Interpreter)
set(EP_PTXAS_LAUNCHER ${Python3_EXECUTABLE} "${PROJECT_SOURCE_DIR}/tools/check_ptxas.py" -- ${EP_CCACHE})

# Every kernel of the target must do without stack and spills.
function(ep_set_kernel_checks target)
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:-Xptxas=-v>)
  set_target_properties(${target} PROPERTIES CUDA_COMPILER_LAUNCHER "${EP_PTXAS_LAUNCHER}")
endfunction()
