// SPDX-License-Identifier: Apache-2.0
// Stacks of all threads of this or of a child process, for the report of a hang.
#pragma once

#include <sys/types.h>

namespace ep::test {

/// From now on a thread of this process that dump_stacks() asks writes its stack to stderr.
void install_stack_dump();

/// Asks every thread of `process`, which must have called install_stack_dump(), and gives it time
/// to answer.
void dump_stacks(pid_t process);

}  // namespace ep::test
