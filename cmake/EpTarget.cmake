# SPDX-License-Identifier: Apache-2.0
# What every target of this repository shares: language level, warnings, sanitizers, visibility.

set(EP_CXX_WARNINGS
  -Wall -Wextra -Wshadow -Wnon-virtual-dtor -Wold-style-cast -Wcast-align -Wmissing-declarations
  -Wundef -Wvla -Wimplicit-fallthrough)

add_library(ep_options INTERFACE)
target_compile_features(ep_options INTERFACE cxx_std_20)
target_compile_options(ep_options INTERFACE
  "$<$<COMPILE_LANGUAGE:CXX>:${EP_CXX_WARNINGS}>"
  # Results are bitwise equal on every executor: a product is rounded before it is added.
  $<$<COMPILE_LANGUAGE:CXX>:-ffp-contract=off>)
if(EP_WERROR)
  target_compile_options(ep_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Werror>)
endif()
if(EP_SANITIZE)
  target_compile_options(ep_options INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:-fsanitize=${EP_SANITIZE}>
    $<$<COMPILE_LANGUAGE:CXX>:-fno-omit-frame-pointer>
    $<$<COMPILE_LANGUAGE:CXX>:-fno-sanitize-recover=all>)
  target_link_options(ep_options INTERFACE -fsanitize=${EP_SANITIZE})
  if(EP_SANITIZE MATCHES "thread" AND EP_WERROR)
    # gcc's ThreadSanitizer does not model atomic_thread_fence; such a fence must not slip in.
    target_compile_options(ep_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Werror=tsan>)
  endif()
endif()

if(PROJECT_IS_TOP_LEVEL AND NOT DEFINED CMAKE_CXX_COMPILER_LAUNCHER)
  find_program(EP_CCACHE ccache)
  if(EP_CCACHE)
    set(CMAKE_CXX_COMPILER_LAUNCHER "${EP_CCACHE}")
    set(CMAKE_CUDA_COMPILER_LAUNCHER "${EP_CCACHE}")
  endif()
endif()

# Applies the shared settings to a target that is compiled here.
function(ep_set_defaults target)
  target_link_libraries(${target} PRIVATE ep_options)
  set_target_properties(${target} PROPERTIES
    CXX_EXTENSIONS OFF
    CXX_VISIBILITY_PRESET hidden
    VISIBILITY_INLINES_HIDDEN ON
    POSITION_INDEPENDENT_CODE ON)
endfunction()
