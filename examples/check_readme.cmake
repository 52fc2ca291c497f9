# SPDX-License-Identifier: Apache-2.0
# cmake -DREADME=... -DEXAMPLE=... -P check_readme.cmake: fails unless README holds the example, without its
# licence line, as a block of code.
file(READ "${README}" readme)
file(READ "${EXAMPLE}" example)
string(REGEX REPLACE "^// SPDX[^\n]*\n" "" example "${example}")
string(FIND "${readme}" "```cpp\n${example}```\n" position)
if(position EQUAL -1)
  message(FATAL_ERROR "${README} does not show ${EXAMPLE} as it is")
endif()
