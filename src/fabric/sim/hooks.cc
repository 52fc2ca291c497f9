// SPDX-License-Identifier: Apache-2.0
// What compiled roles call at each plain access. Sources that are compiled with -fsanitize=thread
// and linked without it find these functions instead of ThreadSanitizer's: so the compiler, not a
// convention, sees to it that no access of watched memory goes unnoticed.
#include "fabric/sim/machine.h"

#include <cstddef>
#include <cstdint>

namespace ep::fabric::sim {
namespace {

void note(const void* address, std::size_t bytes, bool is_write, const void* pc) {
  Machine* machine = Machine::current();
  if (machine == nullptr || !machine->space().contains(address)) return;
  const Checker::Actor actor = machine->checker().actor(machine->running().agent);
  const SiteId site = machine->sites().of_code(reinterpret_cast<std::uintptr_t>(pc));
  if (is_write) {
    machine->checker().write(actor, address, bytes, site);
  } else {
    machine->checker().read(actor, address, bytes, site);
  }
}

}  // namespace
}  // namespace ep::fabric::sim

// NOLINTBEGIN(bugprone-reserved-identifier,cert-dcl37-c,cert-dcl51-cpp,readability-identifier-naming)
#define EP_SIM_HOOK(name, bytes, is_write)                                        \
  extern "C" void __tsan_##name(void* address);                                   \
  extern "C" void __tsan_##name(void* address) {                                  \
    ep::fabric::sim::note(address, bytes, is_write, __builtin_return_address(0)); \
  }
EP_SIM_HOOK(read1, 1, false)
EP_SIM_HOOK(read2, 2, false)
EP_SIM_HOOK(read4, 4, false)
EP_SIM_HOOK(read8, 8, false)
EP_SIM_HOOK(read16, 16, false)
EP_SIM_HOOK(write1, 1, true)
EP_SIM_HOOK(write2, 2, true)
EP_SIM_HOOK(write4, 4, true)
EP_SIM_HOOK(write8, 8, true)
EP_SIM_HOOK(write16, 16, true)
EP_SIM_HOOK(unaligned_read2, 2, false)
EP_SIM_HOOK(unaligned_read4, 4, false)
EP_SIM_HOOK(unaligned_read8, 8, false)
EP_SIM_HOOK(unaligned_read16, 16, false)
EP_SIM_HOOK(unaligned_write2, 2, true)
EP_SIM_HOOK(unaligned_write4, 4, true)
EP_SIM_HOOK(unaligned_write8, 8, true)
EP_SIM_HOOK(unaligned_write16, 16, true)
#undef EP_SIM_HOOK

#define EP_SIM_RANGE_HOOK(name, is_write)                                         \
  extern "C" void __tsan_##name(void* address, std::size_t bytes);                \
  extern "C" void __tsan_##name(void* address, std::size_t bytes) {               \
    ep::fabric::sim::note(address, bytes, is_write, __builtin_return_address(0)); \
  }
EP_SIM_RANGE_HOOK(read_range, false)
EP_SIM_RANGE_HOOK(write_range, true)
#undef EP_SIM_RANGE_HOOK

// Calls, virtual tables and the start of a source are nothing to watch.
extern "C" void __tsan_init();
extern "C" void __tsan_init() {}
extern "C" void __tsan_func_entry(void* pc);
extern "C" void __tsan_func_entry(void* /*pc*/) {}
extern "C" void __tsan_func_exit();
extern "C" void __tsan_func_exit() {}
extern "C" void __tsan_vptr_update(void** vptr, void* value);
extern "C" void __tsan_vptr_update(void** /*vptr*/, void* /*value*/) {}
extern "C" void __tsan_vptr_read(void** vptr);
extern "C" void __tsan_vptr_read(void** /*vptr*/) {}
// NOLINTEND(bugprone-reserved-identifier,cert-dcl37-c,cert-dcl51-cpp,readability-identifier-naming)
