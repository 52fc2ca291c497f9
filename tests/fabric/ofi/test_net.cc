// SPDX-License-Identifier: Apache-2.0
// A rank's transport with a window, for tests.
#include "tests/fabric/ofi/test_net.h"

#include "base/check.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <thread>

namespace ep::test {

using fabric::NetEvent;
using fabric::Posted;

Result<std::unique_ptr<TestNet>> TestNet::make(Bootstrap& bootstrap,
                                               const fabric::OfiConfig& config,
                                               std::int64_t window_bytes) {
  auto net = std::make_unique<TestNet>();
  net->memory_.resize(static_cast<std::size_t>(window_bytes));
  EP_TRY_ASSIGN(net->transport_, make_ofi_transport(bootstrap, config, test_deadline()));
  EP_TRY_ASSIGN(const fabric::WindowId window, net->transport_->add_window(net->memory_));
  EP_TRY_ASSIGN(const auto descriptions,
                bootstrap.all_gather(net->transport_->describe_window(window), kPatience));
  for (int peer = 0; peer < bootstrap.num_ranks(); ++peer) {
    if (peer == bootstrap.rank()) continue;
    EP_TRY(net->transport_->set_peer_window(peer, window,
                                            descriptions[static_cast<std::size_t>(peer)]));
  }
  return net;
}

int TestNet::count(NetEvent::Kind kind) const {
  return static_cast<int>(
      std::count_if(events_.begin(), events_.end(),
                    [kind](const NetEvent& event) { return event.kind == kind; }));
}

fabric::WriteOp TestNet::op_of(const TestWrite& write) {
  return {.peer = write.peer,
          .context = write.context,
          .src = {0, write.src},
          .dst = {0, write.dst},
          .bytes = write.bytes,
          .immediate = write.immediate,
          .cookie = write.cookie};
}

Status TestNet::write(const TestWrite& write) {
  return post([&] { return transport_->write(op_of(write)); }, write.context);
}

Status TestNet::read(const fabric::ReadOp& op) {
  return post([&] { return transport_->read(op); }, op.context);
}

Status TestNet::post(const std::function<Posted()>& try_post, int context) {
  const base::Deadline deadline = test_deadline();
  while (true) {
    const Posted posted = try_post();
    if (posted == Posted::kYes) return Status();
    if (posted == Posted::kFailed) return transport_->failure(context);
    if (deadline.expired()) return Status(Errc::kPeerTimeout, "busy until the deadline");
    poll_once();
    std::this_thread::yield();
  }
}

void TestNet::poll_once() {
  std::array<NetEvent, 32> found;
  for (int context = 0; context < transport_->traits().num_contexts; ++context) {
    const int num = transport_->poll(context, found);
    events_.insert(events_.end(), found.begin(), found.begin() + num);
  }
}

Status TestNet::poll_until(const std::function<bool()>& condition) {
  const base::Deadline deadline = test_deadline();
  while (!condition()) {
    if (deadline.expired()) return Status(Errc::kPeerTimeout, "waited until the deadline");
    poll_once();
    std::this_thread::yield();
  }
  return Status();
}

Status TestNet::meet(Bootstrap& bootstrap) {
  Status status;
  std::atomic<bool> is_done{false};
  std::jthread thread([&] {
    status = bootstrap.barrier(kPatience);
    is_done.store(true);
  });
  EP_TRY(poll_until([&] { return is_done.load(); }));
  thread.join();
  return status;
}

}  // namespace ep::test
