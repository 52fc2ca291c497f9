# SPDX-License-Identifier: Apache-2.0
# Script of EpBuildInfo.cmake: writes EP_OUTPUT from the state of the checkout in EP_SOURCE_DIR.

set(EP_GIT_COMMIT "unknown")
if(EP_GIT AND EXISTS "${EP_SOURCE_DIR}/.git")
  # A checkout that another user owns is read all the same: nothing of it is executed.
  set(git "${EP_GIT}" -c "safe.directory=*" -C "${EP_SOURCE_DIR}")
  execute_process(COMMAND ${git} rev-parse --short=12 HEAD
    OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
  if(NOT failed)
    set(EP_GIT_COMMIT "${commit}")
    execute_process(COMMAND ${git} status --porcelain --untracked-files=normal
      OUTPUT_VARIABLE changes OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    if(changes)
      string(APPEND EP_GIT_COMMIT "-dirty")
    endif()
  endif()
endif()

configure_file("${CMAKE_CURRENT_LIST_DIR}/ep_build_info.h.in" "${EP_OUTPUT}" @ONLY)
