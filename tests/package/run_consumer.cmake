# SPDX-License-Identifier: Apache-2.0
# Script of the test package_consumer.

file(REMOVE_RECURSE "${EP_WORK_DIR}")
set(prefix "${EP_WORK_DIR}/prefix")
set(build "${EP_WORK_DIR}/build")

function(run)
  execute_process(COMMAND ${ARGV} COMMAND_ECHO STDOUT COMMAND_ERROR_IS_FATAL ANY)
endfunction()

run(${CMAKE_COMMAND} --install "${EP_BUILD_DIR}" --prefix "${prefix}")
# The installed tree must stand alone: no path of the checkout or of the build in its CMake files.
file(GLOB_RECURSE package_files "${prefix}/*.cmake")
foreach(file IN LISTS package_files)
  file(READ "${file}" content)
  string(FIND "${content}" "${EP_BUILD_DIR}" position)
  if(NOT position EQUAL -1)
    message(FATAL_ERROR "${file} names the build folder")
  endif()
endforeach()

run(${CMAKE_COMMAND} -S "${EP_CONSUMER_DIR}" -B "${build}" -G "${EP_GENERATOR}"
  "-DCMAKE_PREFIX_PATH=${prefix}"
  "-DCMAKE_CXX_COMPILER=${EP_CXX_COMPILER}"
  "-DEP_EXPECTED_VERSION=${EP_VERSION}")
run(${CMAKE_COMMAND} --build "${build}")
run("${build}/consumer" "${EP_VERSION}")
