# SPDX-License-Identifier: Apache-2.0
# The product library ep, made of one OBJECT library per folder of src.

# Third parties that the sources of ep need; EpConfig.cmake.in finds the same ones for a static ep.
set(EP_PRIVATE_LIBRARIES hwy::hwy Boost::context Threads::Threads)

function(ep_add_product)
  add_library(ep)
  add_library(ep::ep ALIAS ep)
  ep_set_product_properties(ep)
  # What tests and bench link: ep and its private headers. A shared ep hides its private symbols, so
  # they then get the same objects as an archive of their own.
  add_library(ep_internal INTERFACE)
  target_include_directories(ep_internal INTERFACE "${PROJECT_SOURCE_DIR}/src" "${EP_GENERATED_DIR}")
  if(BUILD_SHARED_LIBS)
    add_library(ep_archive STATIC EXCLUDE_FROM_ALL)
    ep_set_product_properties(ep_archive)
    target_link_libraries(ep_internal INTERFACE ep_archive)
  else()
    target_link_libraries(ep_internal INTERFACE ep)
  endif()
  target_link_libraries(ep_internal INTERFACE ${EP_PRIVATE_LIBRARIES})
  add_dependencies(ep_internal ep_build_info)
endfunction()

function(ep_set_product_properties target)
  set_target_properties(${target} PROPERTIES
    LINKER_LANGUAGE CXX
    VERSION ${PROJECT_VERSION}
    SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
  target_compile_features(${target} PUBLIC cxx_std_20)
  target_include_directories(${target} PUBLIC "$<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>")
  target_link_libraries(${target} PRIVATE ${EP_PRIVATE_LIBRARIES})
  if(EP_SANITIZE)
    target_link_options(${target} PUBLIC -fsanitize=${EP_SANITIZE})
  endif()
endfunction()

# ep_add_module(NAME name [SOURCES file.cc ...])
# The folder src/NAME as OBJECT library ep_NAME and part of ep. A folder of headers has no SOURCES.
function(ep_add_module)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "NAME" "SOURCES")
  if(NOT arg_SOURCES)
    return()
  endif()
  set(target ep_${arg_NAME})
  add_library(${target} OBJECT ${arg_SOURCES})
  ep_set_defaults(${target})
  target_include_directories(${target} PRIVATE
    "${PROJECT_SOURCE_DIR}/src" "${PROJECT_SOURCE_DIR}/include" "${EP_GENERATED_DIR}")
  target_link_libraries(${target} PRIVATE ${EP_PRIVATE_LIBRARIES})
  add_dependencies(${target} ep_build_info)
  set_property(GLOBAL APPEND PROPERTY EP_MODULE_TARGETS ${target})
endfunction()

# ep_add_cuda_module(NAME name SOURCES file.cu file.cc ...): what of src/NAME needs CUDA, device
# objects and host sources, target ep_NAME_cuda and part of ep; nothing without EP_WITH_CUDA.
function(ep_add_cuda_module)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "NAME" "SOURCES")
  if(NOT EP_WITH_CUDA)
    return()
  endif()
  set(target ep_${arg_NAME}_cuda)
  add_library(${target} OBJECT EXCLUDE_FROM_ALL ${arg_SOURCES})
  ep_set_defaults(${target})
  ep_set_cuda_defaults(${target})
  target_link_libraries(${target} PRIVATE CUDA::toolkit)
  add_dependencies(${target} ep_build_info)
  ep_set_kernel_checks(${target})
  set(device_sources ${arg_SOURCES})
  list(FILTER device_sources INCLUDE REGEX "\\.cu$")
  if(device_sources)
    ep_check_cuda_architectures(${target} ${device_sources})
  endif()
  set_property(GLOBAL APPEND PROPERTY EP_MODULE_TARGETS ${target})
endfunction()

# Hands the objects of all modules to the product. TARGET_OBJECTS, not a link: an exported static
# library must not name OBJECT libraries.
function(ep_finish_product)
  get_property(modules GLOBAL PROPERTY EP_MODULE_TARGETS)
  foreach(module IN LISTS modules)
    target_sources(ep PRIVATE $<TARGET_OBJECTS:${module}>)
    if(TARGET ep_archive)
      target_sources(ep_archive PRIVATE $<TARGET_OBJECTS:${module}>)
    endif()
  endforeach()
endfunction()
