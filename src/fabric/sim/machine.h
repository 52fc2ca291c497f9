// SPDX-License-Identifier: Apache-2.0
// One simulated run: the fibers of all ranks on one thread, a scheduler that draws who runs next, a
// clock that counts its steps.
#pragma once

#include "fabric/host/fiber_stack.h"
#include "fabric/sim/checker.h"
#include "fabric/sim/random.h"
#include "fabric/sim/site.h"
#include "fabric/sim/space.h"
#include "fabric/sim/trace.h"

#include <boost/context/fiber.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace ep::fabric::sim {

struct Lane;

/// Acts on its own beside the fibers: a copy unit, a network.
class Device {
 public:
  Device() = default;
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;
  virtual ~Device() = default;
  virtual bool is_busy() const = 0;
  /// One step of its work, which it draws. Precondition: is_busy().
  virtual void act(Random& random) = 0;
};

/// A thread of a lane, or the host of a rank.
struct Fiber {
  enum class State : std::uint8_t {
    kReady,
    kPolling,  ///< until the word that it saw last changes, or somebody looks for the time
    kBlocked,  ///< until `is_over`
    kEnded,
  };

  std::string name;
  AgentId agent = 0;
  Lane* lane = nullptr;  ///< null: a host
  int thread_rank = 0;
  State state = State::kReady;
  std::function<bool()> is_over{};
  const char* awaits = "its turn";
  /// What copies that this thread starts are ordered behind: its view, as of its last proxy fence.
  VectorClock async_view{};
  const void* polled =
      nullptr;           ///< the word that it loaded last; null: it may not have seen the newest
  int weight = 1;        ///< of its lot
  SiteId call_site = 0;  ///< where its role called the row pipe or the reducer
  std::function<void()> body{};
  std::unique_ptr<FiberStack> stack{};
  boost::context::fiber context{};
  boost::context::fiber scheduler{};
};

class Machine {
 public:
  struct Options {
    std::uint64_t seed = 0;
    int num_ranks = 1;
    std::size_t rank_bytes = std::size_t{1} << 28;
    std::size_t scratch_bytes = std::size_t{1} << 28;
    Trace* trace = nullptr;  ///< null: none
    /// Names an address: "rank 1, ring_payload + 0x40".
    std::function<std::string(const std::byte*)> describe{};
    /// The part of a rank's memory that a word belongs to, a literal; null: nobody names parts.
    std::function<const char*(const std::byte*)> region_of{};
  };

  Machine(Sites& sites, const Options& options);
  ~Machine();
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;

  /// The machine that runs on this thread; null outside of run().
  static Machine* current();

  /// A host of a rank: its program calls launch(). Before run().
  void add_host(int rank, std::function<void()> program);
  /// Until all fibers have ended.
  void run();
  /// At that step no fiber of the rank acts any more, whatever it is at; copies that are under way
  /// still land. Before run().
  void kill_at(std::uint64_t step, int rank) {
    kill_step_ = step;
    killed_rank_ = rank;
  }

  // From a fiber.

  /// Runs these threads, which belong to the rank of the calling host, to their end. They begin
  /// behind what the host did, and the host goes on behind all of them.
  struct Task {
    std::string name;
    AgentId agent;
    Lane* lane;
    int thread_rank;
    std::function<void()> body;
  };
  void launch(std::vector<Task> tasks);

  Fiber& running() { return *running_; }
  /// Somebody else may come first.
  void step();
  /// Between two polls.
  void relax();
  /// Lets others run until `is_over`; `what` it waits for is named if that never comes.
  void block(const char* what, std::function<bool()> is_over);
  /// The word may have changed: who polls it looks again.
  void wake(const void* word);

  std::uint64_t now_ns() const { return now_ns_; }
  std::uint64_t num_steps() const { return num_steps_; }

  Space& space() { return space_; }
  Sites& sites() { return sites_; }
  Checker& checker() { return checker_; }
  Random& random() { return random_; }
  Trace* trace() { return options_.trace; }
  /// Null for words that are not watched, or have no name.
  const char* region_of(const void* word) const {
    if (!options_.region_of || !space_.contains(word)) return nullptr;
    return options_.region_of(static_cast<const std::byte*>(word));
  }

  /// Memory of the scratch part, for good; zeroed.
  std::byte* allocate_scratch(std::size_t bytes);
  /// Keeps a device in the draw; it must outlive the machine's run.
  void add_device(Device* device) { devices_.push_back(device); }

 private:
  /// How unfair the draw is; drawn once per run.
  struct Habits {
    std::uint64_t run_on = 1;  ///< a fiber goes on, on average, for so many accesses
    int device_percent = 50;   ///< chance of a device where fibers are ready, too
    int stale_percent = 0;
    bool favours = false;  ///< fibers have weights
  };
  static Habits draw_habits(Random& random);

  void start(Fiber& fiber);
  void resume(Fiber& fiber);
  void suspend();
  void collect();
  Fiber* draw_fiber();
  bool act_device();
  /// False where nobody waits for time either.
  bool pass_idle_time();
  void abandon(const char* why);
  void kill(int rank);

  Options options_;
  Sites& sites_;
  Random random_;
  Habits habits_;
  Space space_;
  Checker checker_;
  std::size_t scratch_used_ = 0;
  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::vector<std::unique_ptr<FiberStack>> free_stacks_;
  std::vector<Fiber*> ready_;  // of the draw at hand
  std::vector<Device*> devices_;
  std::vector<Device*> busy_;  // of the draw at hand
  Fiber* running_ = nullptr;
  std::size_t num_live_ = 0;
  std::uint64_t num_steps_ = 0;
  std::uint64_t now_ns_ = 1;
  std::uint64_t kill_step_ = 0;  // 0: never
  int killed_rank_ = 0;
};

}  // namespace ep::fabric::sim
