# SPDX-License-Identifier: Apache-2.0
# Installs the library, its public headers and the package Ep: find_package(Ep), target ep::ep.

include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(EP_PACKAGE_DIR "${CMAKE_INSTALL_LIBDIR}/cmake/Ep")

install(TARGETS ep
  EXPORT EpTargets
  FILE_SET HEADERS)
install(EXPORT EpTargets NAMESPACE ep:: DESTINATION "${EP_PACKAGE_DIR}")

configure_package_config_file(
  "${PROJECT_SOURCE_DIR}/cmake/EpConfig.cmake.in"
  "${PROJECT_BINARY_DIR}/EpConfig.cmake"
  INSTALL_DESTINATION "${EP_PACKAGE_DIR}")
write_basic_package_version_file(
  "${PROJECT_BINARY_DIR}/EpConfigVersion.cmake" COMPATIBILITY SameMinorVersion)
install(FILES
  "${PROJECT_BINARY_DIR}/EpConfig.cmake" "${PROJECT_BINARY_DIR}/EpConfigVersion.cmake"
  DESTINATION "${EP_PACKAGE_DIR}")
