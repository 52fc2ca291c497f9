// SPDX-License-Identifier: Apache-2.0
// The scheduler: one draw per step, the same draws for the same seed.
#include "fabric/sim/machine.h"

#include "base/check.h"

#include <algorithm>
#include <utility>

namespace ep::fabric::sim {
namespace {

constexpr std::uint64_t kNsPerStep = 20;
// Where everybody waits, time leaps: hundreds of polls reach the deadline, which is the report of a
// deadlock.
constexpr std::uint64_t kIdleNs = 5'000'000;
// No run of right roles comes near it.
constexpr std::uint64_t kMaxSteps = 20'000'000;
// A waiter also looks without a cause.
constexpr std::uint64_t kIdleLooks = 256;

Machine*& current_machine() {
  thread_local Machine* machine = nullptr;
  return machine;
}

}  // namespace

Machine* Machine::current() { return current_machine(); }

Machine::Habits Machine::draw_habits(Random& random) {
  constexpr std::uint64_t kRunOn[] = {1, 2, 8, 32};
  constexpr int kDevicePercents[] = {0, 3, 30, 80};
  constexpr int kStalePercents[] = {0, 10, 50};
  Habits habits;
  habits.run_on = kRunOn[random.below(std::size(kRunOn))];
  habits.device_percent = kDevicePercents[random.below(std::size(kDevicePercents))];
  habits.stale_percent = kStalePercents[random.below(std::size(kStalePercents))];
  habits.favours = random.one_in(2);
  return habits;
}

Machine::Machine(Sites& sites, const Options& options)
    : options_(options),
      sites_(sites),
      random_(options.seed),
      habits_(draw_habits(random_)),
      space_(options.num_ranks + 1, std::max(options.rank_bytes, options.scratch_bytes)),
      checker_(space_,
               sites,
               random_,
               {.stale_percent = habits_.stale_percent, .describe = options.describe}) {}

Machine::~Machine() = default;

std::byte* Machine::allocate_scratch(std::size_t bytes) {
  constexpr std::size_t kLine = 128;
  std::byte* memory = space_.part(options_.num_ranks) + scratch_used_;
  scratch_used_ += (bytes + kLine - 1) / kLine * kLine;
  EP_CHECK(scratch_used_ <= space_.part_bytes());
  return memory;
}

void Machine::add_host(int rank, std::function<void()> program) {
  auto fiber = std::make_unique<Fiber>();
  fiber->name = "rank " + std::to_string(rank) + ", host";
  fiber->agent = checker_.add_agent(rank, fiber->name);
  fiber->body = std::move(program);
  start(*fiber);
  fibers_.push_back(std::move(fiber));
}

void Machine::start(Fiber& fiber) {
  constexpr int kWeights[] = {1, 1, 4, 32};
  if (free_stacks_.empty()) free_stacks_.push_back(std::make_unique<FiberStack>());
  fiber.stack = std::move(free_stacks_.back());
  free_stacks_.pop_back();
  if (habits_.favours) fiber.weight = kWeights[random_.below(std::size(kWeights))];
  ++num_live_;
  fiber.context = fiber.stack->make_fiber([this, &fiber](boost::context::fiber&& scheduler) {
    fiber.scheduler = std::move(scheduler);
    fiber.body();
    fiber.state = Fiber::State::kEnded;
    --num_live_;
    return std::move(fiber.scheduler);
  });
}

void Machine::resume(Fiber& fiber) {
  running_ = &fiber;
  fiber.context = std::move(fiber.context).resume();
  running_ = nullptr;
}

void Machine::suspend() {
  Fiber& fiber = *running_;
  fiber.scheduler = std::move(fiber.scheduler).resume();
}

void Machine::run() {
  Machine* const outer = std::exchange(current_machine(), this);
  while (num_live_ > 0) {
    ++num_steps_;
    now_ns_ += kNsPerStep;
    checker_.set_time(num_steps_);
    if (num_steps_ == kill_step_) kill(killed_rank_);
    collect();
    if (!busy_.empty() && (ready_.empty() || random_.chance(habits_.device_percent))) {
      busy_[random_.below(busy_.size())]->act(random_);
    } else if (Fiber* fiber = draw_fiber(); fiber != nullptr) {
      resume(*fiber);
    } else if (!pass_idle_time()) {
      abandon("which never comes");
    }
    if (num_steps_ > kMaxSteps) abandon("and too many steps have passed");
  }
  current_machine() = outer;
}

/// Who could act now; gives back what ended.
void Machine::collect() {
  ready_.clear();
  busy_.clear();
  std::size_t num_kept = 0;
  for (auto& fiber : fibers_) {
    if (fiber->state == Fiber::State::kEnded) {
      free_stacks_.push_back(std::move(fiber->stack));
      continue;
    }
    if (fiber->state == Fiber::State::kBlocked && fiber->is_over())
      fiber->state = Fiber::State::kReady;
    if (fiber->state == Fiber::State::kReady) ready_.push_back(fiber.get());
    if (&fiber != &fibers_[num_kept]) fibers_[num_kept] = std::move(fiber);
    ++num_kept;
  }
  fibers_.resize(num_kept);
  for (Device* device : devices_) {
    if (device->is_busy()) busy_.push_back(device);
  }
}

Fiber* Machine::draw_fiber() {
  if (random_.one_in(kIdleLooks)) {
    Fiber& fiber = *fibers_[random_.below(fibers_.size())];
    if (fiber.state == Fiber::State::kPolling) fiber.state = Fiber::State::kReady;
    if (fiber.state == Fiber::State::kReady) return &fiber;
  }
  if (ready_.empty()) return nullptr;
  if (!habits_.favours) return ready_[random_.below(ready_.size())];
  std::uint64_t total = 0;
  for (const Fiber* fiber : ready_) total += static_cast<std::uint64_t>(fiber->weight);
  std::uint64_t lot = random_.below(total);
  for (Fiber* fiber : ready_) {
    const auto weight = static_cast<std::uint64_t>(fiber->weight);
    if (lot < weight) return fiber;
    lot -= weight;
  }
  return ready_.back();
}

/// Nobody can act before time passes: all who poll look at the clock.
bool Machine::pass_idle_time() {
  bool is_anybody_polling = false;
  for (const auto& fiber : fibers_) {
    if (fiber->state != Fiber::State::kPolling) continue;
    fiber->state = Fiber::State::kReady;
    is_anybody_polling = true;
  }
  now_ns_ += kIdleNs;
  return is_anybody_polling;
}

void Machine::kill(int rank) {
  for (auto& fiber : fibers_) {
    if (checker_.rank_of(fiber->agent) != rank || fiber->state == Fiber::State::kEnded) continue;
    // Lost with all it holds, as by abandon().
    static_cast<void>(fiber.release());
    --num_live_;
  }
  std::erase(fibers_, nullptr);
}

/// Ends a run that cannot go on. Its fibers cannot be unwound, for their destructors wait, too:
/// they and what they hold are lost.
void Machine::abandon(const char* why) {
  for (auto& fiber : fibers_) {
    if (fiber->state == Fiber::State::kEnded) continue;
    checker_.report(fiber->name + ", thread " + std::to_string(fiber->thread_rank) + " awaits " +
                    fiber->awaits + ", " + why);
    static_cast<void>(fiber.release());
  }
  fibers_.clear();
  num_live_ = 0;
}

void Machine::launch(std::vector<Task> tasks) {
  Fiber& host = *running_;
  auto num_running = std::make_shared<std::size_t>(tasks.size());
  for (Task& task : tasks) {
    auto fiber = std::make_unique<Fiber>();
    fiber->name = std::move(task.name);
    fiber->agent = task.agent;
    fiber->lane = task.lane;
    fiber->thread_rank = task.thread_rank;
    checker_.view(task.agent).join(checker_.view(host.agent));
    checker_.tick(task.agent);
    fiber->async_view = checker_.view(task.agent);
    fiber->body = [this, num_running, host = host.agent, agent = task.agent,
                   body = std::move(task.body)] {
      body();
      checker_.view(host).join(checker_.view(agent));
      --*num_running;
    };
    start(*fiber);
    fibers_.push_back(std::move(fiber));
  }
  checker_.tick(host.agent);
  block("its lanes", [num_running] { return *num_running == 0; });
}

void Machine::step() {
  if (habits_.run_on > 1 && !random_.one_in(habits_.run_on)) {
    now_ns_ += kNsPerStep;
    return;
  }
  suspend();
}

void Machine::relax() {
  Fiber& fiber = *running_;
  if (fiber.polled != nullptr) fiber.state = Fiber::State::kPolling;
  suspend();
}

void Machine::block(const char* what, std::function<bool()> is_over) {
  if (is_over()) return;
  Fiber& fiber = *running_;
  fiber.awaits = what;
  fiber.is_over = std::move(is_over);
  fiber.state = Fiber::State::kBlocked;
  suspend();
}

void Machine::wake(const void* word) {
  for (const auto& fiber : fibers_) {
    if (fiber->state == Fiber::State::kPolling && fiber->polled == word)
      fiber->state = Fiber::State::kReady;
  }
}

}  // namespace ep::fabric::sim
