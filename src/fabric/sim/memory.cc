// SPDX-License-Identifier: Apache-2.0
// Every access of a role that the vocabulary names.
#include "fabric/sim/memory.h"

#include "fabric/sim/machine.h"

#include <algorithm>
#include <cstring>

namespace ep::fabric::sim {
namespace {

/// An atomic access is where another fiber may come first, and what a mutation weakens.
Checker::Atomic begin(Machine& machine, WordAccess word, const std::source_location& at) {
  machine.step();
  Sites& sites = machine.sites();
  const SiteId site = sites.of(at);
  const char* region = word.acquires || word.releases ? machine.region_of(word.address) : nullptr;
  if (word.acquires) word.acquires = !sites.is_weakened(site, Order::kAcquire, region);
  if (word.releases) word.releases = !sites.is_weakened(site, Order::kRelease, region);
  return {machine.running().agent, word.address,  word.bytes, word.scope,
          word.acquires,           word.releases, site};
}

void trace(Machine& machine, const Checker::Atomic& op, const char* what, std::uint64_t value) {
  if (machine.trace() == nullptr) return;
  machine.trace()->add(machine.checker().rank_of(op.agent), op.agent, machine.now_ns(), what,
                       machine.sites().describe(op.site), value);
}

std::uint64_t modify(WordAccess word,
                     Checker::Change change,
                     std::uint64_t operand,
                     std::uint64_t expected,
                     const std::source_location& at) {
  Machine& machine = *Machine::current();
  const Checker::Atomic op = begin(machine, word, at);
  const std::uint64_t before = machine.checker().modify(op, change, operand, expected);
  machine.running().polled = nullptr;
  machine.wake(word.address);
  trace(machine, op, word.releases ? "release add" : "modify", before);
  return before;
}

}  // namespace

std::uint64_t load_plain(const WordAccess& word, const std::source_location& at) {
  Machine& machine = *Machine::current();
  const auto bytes = static_cast<std::size_t>(word.bytes);
  machine.checker().read(machine.checker().actor(machine.running().agent), word.address, bytes,
                         machine.sites().of(at));
  std::uint64_t value = 0;
  std::memcpy(&value, word.address, bytes);
  return value;
}

void store_plain(const WordAccess& word, std::uint64_t value, const std::source_location& at) {
  Machine& machine = *Machine::current();
  const auto bytes = static_cast<std::size_t>(word.bytes);
  machine.checker().write(machine.checker().actor(machine.running().agent), word.address, bytes,
                          machine.sites().of(at));
  std::memcpy(word.address, &value, bytes);
}

std::uint64_t load_atomic(WordAccess word, const std::source_location& at) {
  Machine& machine = *Machine::current();
  const Checker::Atomic op = begin(machine, word, at);
  const Checker::Loaded loaded = machine.checker().load(op);
  // Who did not see the newest value must not wait for another one.
  machine.running().polled = loaded.is_newest ? word.address : nullptr;
  trace(machine, op, word.acquires ? "acquire" : "load", loaded.value);
  return loaded.value;
}

void store_atomic(WordAccess word, std::uint64_t value, const std::source_location& at) {
  Machine& machine = *Machine::current();
  const Checker::Atomic op = begin(machine, word, at);
  machine.checker().store(op, value);
  machine.wake(word.address);
  trace(machine, op, word.releases ? "release" : "store", value);
}

std::uint64_t add_atomic(WordAccess word, std::uint64_t value, const std::source_location& at) {
  const auto add = [](std::uint64_t before, std::uint64_t operand, std::uint64_t /*expected*/,
                      std::uint64_t& after) {
    after = before + operand;
    return true;
  };
  return modify(word, add, value, 0, at);
}

std::uint64_t max_atomic(WordAccess word, std::uint64_t value, const std::source_location& at) {
  const auto max = [](std::uint64_t before, std::uint64_t operand, std::uint64_t /*expected*/,
                      std::uint64_t& after) {
    after = std::max(before, operand);
    return true;
  };
  return modify(word, max, value, 0, at);
}

std::uint64_t or_atomic(WordAccess word, std::uint64_t value, const std::source_location& at) {
  const auto either = [](std::uint64_t before, std::uint64_t operand, std::uint64_t /*expected*/,
                         std::uint64_t& after) {
    after = before | operand;
    return true;
  };
  return modify(word, either, value, 0, at);
}

std::uint64_t exchange_atomic(WordAccess word,
                              std::uint64_t expected,
                              std::uint64_t desired,
                              const std::source_location& at) {
  const auto exchange = [](std::uint64_t before, std::uint64_t operand, std::uint64_t wanted,
                           std::uint64_t& after) {
    after = operand;
    return before == wanted;
  };
  return modify(word, exchange, desired, expected, at);
}

}  // namespace ep::fabric::sim
