// SPDX-License-Identifier: Apache-2.0
// Holds operations and completions back.
#include "tests/fabric/net/shuffled_transport.h"

#include "base/check.h"
#include "base/hash.h"

#include <algorithm>
#include <utility>

namespace ep::test {

using fabric::NetEvent;
using fabric::Posted;
using fabric::ReadOp;
using fabric::WriteOp;

ShuffledTransport::ShuffledTransport(std::unique_ptr<fabric::Transport> inner, std::uint64_t seed)
    : inner_(std::move(inner)), contexts_(static_cast<std::size_t>(traits().num_contexts)) {
  for (Context& context : contexts_) context.random.seed(seed++);
}

Result<fabric::WindowId> ShuffledTransport::add_window(std::span<std::byte> memory) {
  windows_.push_back(memory);
  return inner_->add_window(memory);
}

Posted ShuffledTransport::write(const WriteOp& op) {
  const Posted posted = hold(op.context, op);
  if (posted == Posted::kYes) {
    const auto source = windows_[static_cast<std::size_t>(op.src.window)].subspan(
        static_cast<std::size_t>(op.src.offset), static_cast<std::size_t>(op.bytes));
    at(op.context).guards.push_back({op.cookie, source, base::fnv1a_64(source)});
  }
  return posted;
}

Posted ShuffledTransport::hold(int context, const Op& op) {
  std::vector<Op>& held = at(context).held;
  if (held.size() == kMaxHeld || at(context).random() % 4 == 0) return Posted::kBusy;
  held.push_back(op);
  return Posted::kYes;
}

void ShuffledTransport::release_some(Context& context) {
  while (!context.held.empty() && context.random() % 3 != 0) {
    std::swap(context.held[context.random() % context.held.size()], context.held.back());
    const Op op = context.held.back();
    const Posted posted = std::holds_alternative<WriteOp>(op) ? inner_->write(std::get<WriteOp>(op))
                                                              : inner_->read(std::get<ReadOp>(op));
    if (posted != Posted::kYes) return;
    context.held.pop_back();
  }
}

int ShuffledTransport::poll(int context, std::span<NetEvent> events) {
  release_some(at(context));
  const int count = inner_->poll(context, events);
  return delay_some(at(context), events, static_cast<std::size_t>(count));
}

/// Completions come late, in any order; arrivals at once.
int ShuffledTransport::delay_some(Context& context, std::span<NetEvent> events, std::size_t count) {
  std::size_t kept = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const NetEvent event = events[i];
    if (event.kind == NetEvent::Kind::kSourceFree && context.random() % 2 == 0) {
      context.late.push_back(event);
    } else {
      events[kept++] = event;
    }
  }
  while (!context.late.empty() && kept < events.size() && context.random() % 4 == 0) {
    std::swap(context.late[context.random() % context.late.size()], context.late.back());
    events[kept++] = context.late.back();
    context.late.pop_back();
  }
  for (std::size_t i = 0; i < kept; ++i) {
    if (events[i].kind == NetEvent::Kind::kSourceFree) check_source(context, events[i].cookie);
  }
  return static_cast<int>(kept);
}

void ShuffledTransport::check_source(Context& context, std::uint64_t cookie) {
  const auto guard = std::find_if(context.guards.begin(), context.guards.end(),
                                  [cookie](const Guard& it) { return it.cookie == cookie; });
  EP_CHECK(guard != context.guards.end());
  EP_CHECK(base::fnv1a_64(guard->source) == guard->hash, "a source changed before it was free");
  context.guards.erase(guard);
}

}  // namespace ep::test
