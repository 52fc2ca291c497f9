// SPDX-License-Identifier: Apache-2.0
// A parked thread that answers peers while no caller makes progress.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

namespace ep::fabric {

class NetEngine;

class NetService {
 public:
  /// Calls engine.serve() every `interval` until it is destroyed.
  NetService(NetEngine& engine, std::chrono::milliseconds interval);
  NetService(const NetService&) = delete;
  NetService& operator=(const NetService&) = delete;
  ~NetService();

 private:
  void run(std::chrono::milliseconds interval);

  NetEngine& engine_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool is_stopping_ = false;  ///< guarded by mutex_
  std::thread thread_;
};

}  // namespace ep::fabric
