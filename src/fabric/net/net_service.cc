// SPDX-License-Identifier: Apache-2.0
// The loop of the service thread.
#include "fabric/net/net_service.h"

#include "base/blocked_signals.h"
#include "fabric/net/net_engine.h"

#include <pthread.h>

namespace ep::fabric {

NetService::NetService(NetEngine& engine, std::chrono::milliseconds interval) : engine_(engine) {
  const base::BlockedSignals blocked;
  thread_ = std::thread([this, interval] { run(interval); });
  pthread_setname_np(thread_.native_handle(), "ep-net");
}

NetService::~NetService() {
  {
    const std::scoped_lock lock(mutex_);
    is_stopping_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

void NetService::run(std::chrono::milliseconds interval) {
  std::unique_lock lock(mutex_);
  while (!wake_.wait_for(lock, interval, [this] { return is_stopping_; })) {
    lock.unlock();
    while (engine_.serve() > 0) {
    }
    lock.lock();
  }
}

}  // namespace ep::fabric
