// SPDX-License-Identifier: Apache-2.0
// Happens-before over a shadow of the watched memory.
#include "fabric/sim/checker.h"

#include "base/check.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace ep::fabric::sim {
namespace {

std::uint64_t load_raw(const void* address, int bytes) {
  std::uint64_t value = 0;
  std::memcpy(&value, address, static_cast<std::size_t>(bytes));
  return value;
}
void store_raw(void* address, int bytes, std::uint64_t value) {
  std::memcpy(address, &value, static_cast<std::size_t>(bytes));
}

}  // namespace

Checker::Checker(Space& space, Sites& sites, Random& random, Options options)
    : space_(space),
      sites_(sites),
      random_(random),
      options_(std::move(options)),
      words_(1),
      others_(1) {}

AgentId Checker::add_agent(int rank, std::string name) {
  EP_CHECK(agents_.size() < (std::size_t{1} << 16));
  const auto agent = static_cast<AgentId>(agents_.size());
  agents_.push_back({.rank = rank, .name = std::move(name), .view = {}});
  view(agent).raise(agent, 1);
  return agent;
}

// Races

bool Checker::is_ordered(const Access& before, const Actor& actor) const {
  if (before.agent == actor.agent && !actor.is_async) return true;
  return actor.view->covers(before.agent, before.clock);
}

bool Checker::conflict(const Access& before, const Actor& actor, const Access& now) const {
  if (before.clock == 0 || !(before.is_write || now.is_write)) return false;
  if (before.is_atomic && now.is_atomic) {
    const bool reach_each_other =
        agents_[before.agent].rank == agents_[now.agent].rank || !(before.is_gpu || now.is_gpu);
    if (reach_each_other) return false;
  }
  return !is_ordered(before, actor);
}

void Checker::touch(Cell& cell, const Actor& actor, const Access& now, const void* address) {
  if (now.is_write ? cell.write == now && cell.read.clock == 0 : cell.read == now) return;
  if (conflict(cell.write, actor, now)) report_race(cell.write, now, address);
  if (conflict(cell.read, actor, now)) report_race(cell.read, now, address);
  if (cell.others != 0) {
    for (const Access& other : others_[cell.others]) {
      if (conflict(other, actor, now)) report_race(other, now, address);
    }
  }
  if (now.is_write) {
    replace_write(cell, actor, now);
  } else {
    if (cell.read.clock != 0) keep_others(cell, actor, cell.read);
    cell.read = now;
  }
}

void Checker::replace_write(Cell& cell, const Actor& actor, const Access& now) {
  if (!now.is_atomic) {
    // Everything before is ordered, or was reported.
    if (cell.others != 0) others_[cell.others].clear();
    if (cell.word != 0) words_[cell.word].forget();
  } else {
    if (cell.write.clock != 0) keep_others(cell, actor, cell.write);
    if (cell.read.clock != 0) keep_others(cell, actor, cell.read);
  }
  cell.write = now;
  cell.read = {};
}

/// Keeps an access that is about to be replaced, unless the one that replaces it comes after it:
/// whoever is ordered behind that one is then ordered behind both.
void Checker::keep_others(Cell& cell, const Actor& actor, const Access& access) {
  if (is_ordered(access, actor)) return;
  if (cell.others == 0) {
    cell.others = static_cast<std::uint32_t>(others_.size());
    others_.emplace_back();
  }
  std::vector<Access>& others = others_[cell.others];
  std::erase_if(others, [&](const Access& other) {
    return other.agent == access.agent && other.is_write == access.is_write;
  });
  others.push_back(access);
}

void Checker::touch_all(const Actor& actor, Access now, const void* address, std::size_t bytes) {
  if (bytes == 0 || !space_.contains(address)) return;
  const auto* first = static_cast<const std::byte*>(address);
  const auto* begin = first - space_.offset_of(first) % Space::kGranule;
  for (const std::byte* at = begin; at < first + bytes; at += Space::kGranule)
    touch(space_.cell(at), actor, now, at);
}

void Checker::read(const Actor& actor, const void* address, std::size_t bytes, SiteId site) {
  touch_all(actor,
            {.clock = actor.clock, .agent = actor.agent, .is_async = actor.is_async, .site = site},
            address, bytes);
}

void Checker::write(const Actor& actor, const void* address, std::size_t bytes, SiteId site) {
  touch_all(actor,
            {.clock = actor.clock,
             .agent = actor.agent,
             .is_write = true,
             .is_async = actor.is_async,
             .site = site},
            address, bytes);
}

// Atomic words

Word& Checker::word_at(const Atomic& op) {
  Cell& cell = space_.cell(op.address);
  if (cell.word == 0) {
    cell.word = static_cast<std::uint32_t>(words_.size());
    words_.emplace_back();
  }
  Word& word = words_[cell.word];
  if (!word.is_known())
    word.push({.value = load_raw(op.address, op.bytes), .by = cell.write, .released = nullptr},
              time_);
  return word;
}

void Checker::touch_word(const Atomic& op, bool is_write) {
  const Actor who = actor(op.agent);
  touch_all(who,
            {.clock = who.clock,
             .agent = who.agent,
             .is_write = is_write,
             .is_atomic = true,
             .is_gpu = op.scope == Scope::kGpu,
             .site = op.site},
            op.address, static_cast<std::size_t>(op.bytes));
}

void Checker::acquire(const Atomic& op, const Word::Store& store) {
  if (!op.acquires) return;
  note(op.agent, op.site, false);
  if (store.released != nullptr)
    store.released->acquire(rank_of(op.agent), op.scope, view(op.agent));
}

Checker::Loaded Checker::load(const Atomic& op) {
  if (!space_.contains(op.address)) return {load_raw(op.address, op.bytes), true};
  Word& word = word_at(op);
  touch_word(op, false);
  const Word::Store& seen =
      word.load(op.agent, view(op.agent), time_, random_, options_.stale_percent);
  acquire(op, seen);
  return {seen.value, &seen == &word.newest()};
}

void Checker::store(const Atomic& op, std::uint64_t value) {
  if (!space_.contains(op.address)) return store_raw(op.address, op.bytes, value);
  Word& word = word_at(op);
  touch_word(op, true);
  Word::Store made{.value = value, .by = space_.cell(op.address).write, .released = nullptr};
  if (op.releases) {
    made.released = Released::extend(nullptr, rank_of(op.agent), op.scope, view(op.agent));
    note(op.agent, op.site, true);
  }
  word.push(std::move(made), time_);
  word.note_seen(op.agent, view(op.agent));
  store_raw(op.address, op.bytes, value);
  if (op.releases) tick(op.agent);
}

std::uint64_t Checker::modify(const Atomic& op,
                              Change change,
                              std::uint64_t operand,
                              std::uint64_t expected) {
  std::uint64_t after = 0;
  if (!space_.contains(op.address)) {
    const std::uint64_t before = load_raw(op.address, op.bytes);
    if (change(before, operand, expected, after)) store_raw(op.address, op.bytes, after);
    return before;
  }
  Word& word = word_at(op);
  const Word::Store before = word.newest();
  const bool is_stored = change(before.value, operand, expected, after);
  touch_word(op, is_stored);
  acquire(op, before);
  if (is_stored) {
    Word::Store made{
        .value = after, .by = space_.cell(op.address).write, .released = before.released};
    if (op.releases) {
      made.released =
          Released::extend(before.released.get(), rank_of(op.agent), op.scope, view(op.agent));
      note(op.agent, op.site, true);
    }
    word.push(std::move(made), time_);
    store_raw(op.address, op.bytes, after);
  }
  word.note_seen(op.agent, view(op.agent));
  if (is_stored && op.releases) tick(op.agent);
  return before.value;
}

// Reports

void Checker::note(AgentId agent, SiteId site, bool is_release) {
  Agent& noted = agents_[agent];
  noted.notes[noted.num_notes++ % noted.notes.size()] = {noted.view.of(agent), site, is_release};
}

void Checker::report(const std::string& text) {
  if (violations_.size() < kMaxViolations) violations_.push_back(text);
}

void Checker::report(AgentId agent, SiteId site, const std::string& text) {
  report(agents_[agent].name + ": " + text + ", at " + sites_.describe(site));
}

std::string Checker::describe(const Access& access) const {
  std::string text = agents_[access.agent].name;
  text += access.is_atomic ? (access.is_gpu ? ", atomic (gpu) " : ", atomic ") : ", ";
  text += access.is_write ? "write" : "read";
  return text + " at " + sites_.describe(access.site);
}

/// The releases of the earlier agent since its access, and the newest acquires of the later one:
/// between them an order was to be expected.
std::string Checker::orders_around(const Access& before, const Access& now) const {
  constexpr int kShown = 3;
  std::string text;
  const auto append = [&](const Agent& agent, bool is_release, Clock from, const char* title) {
    int num_shown = 0;
    const std::size_t size = agent.notes.size();
    for (std::size_t i = 0; i < std::min(size, agent.num_notes) && num_shown < kShown; ++i) {
      const SyncNote& note = agent.notes[(agent.num_notes - 1 - i) % size];
      if (note.is_release != is_release || note.clock < from) continue;
      text += (num_shown++ == 0 ? title : ", ") + sites_.describe(note.site);
    }
  };
  append(agents_[before.agent], true, before.clock, "\n    the former released since: ");
  append(agents_[now.agent], false, 0, "\n    the latter acquired last: ");
  return text;
}

void Checker::report_race(const Access& before, const Access& now, const void* address) {
  if (violations_.size() >= kMaxViolations) return;
  const auto* where = static_cast<const std::byte*>(address);
  std::string text = "no order between two accesses of ";
  text += options_.describe ? options_.describe(where) : std::to_string(space_.offset_of(where));
  text += "\n    " + describe(before) + "\n    " + describe(now) + orders_around(before, now);
  report(text);
}

}  // namespace ep::fabric::sim
