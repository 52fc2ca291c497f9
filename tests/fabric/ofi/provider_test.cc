// SPDX-License-Identifier: Apache-2.0
// Which provider and address are chosen, and a library that is not there.
#include "fabric/ofi/provider.h"

#include <gtest/gtest.h>

#include <vector>

namespace ep::fabric {
namespace {

Candidate tcp_like(const std::string& provider, const std::string& address) {
  return {.provider = provider,
          .fabric = address + "/24",
          .interface = address.starts_with("127.") ? "lo" : "eth0",
          .address = address};
}

Candidate hardware(const std::string& provider, const std::string& fabric) {
  return {.provider = provider, .fabric = fabric, .interface = provider + "0", .address = {}};
}

/// "provider/fabric" of the choice, or the code of the error.
std::string chosen(const std::vector<Candidate>& candidates, const ProviderWish& wish = {}) {
  const auto place = choose_provider(candidates, wish);
  if (!place.ok()) return std::string(name_of(place.status().code()));
  return candidates[*place].provider + " " + candidates[*place].fabric;
}

TEST(OfiProvider, HardwareIsTakenBeforeSocketsAndTheLeanEndpointsOfEfaFirst) {
  const std::vector<Candidate> all = {
      tcp_like("tcp;ofi_rxm", "10.0.0.1"), tcp_like("net", "10.0.0.1"), tcp_like("tcp", "10.0.0.1"),
      hardware("verbs;ofi_rxm", "ib"),     hardware("cxi", "cxi"),      hardware("efa", "efa"),
      hardware("efa", "efa-direct")};
  std::vector<Candidate> left = all;
  for (const char* best : {"efa efa-direct", "efa efa", "cxi cxi", "verbs;ofi_rxm ib",
                           "tcp 10.0.0.1/24", "net 10.0.0.1/24"}) {
    EXPECT_EQ(chosen(left), best);
    left.pop_back();
  }
}

TEST(OfiProvider, WhatIsHarmfulIsTakenOnlyIfAskedFor) {
  const std::vector<Candidate> harmful = {tcp_like("tcp;ofi_rxm", "10.0.0.1"),
                                          tcp_like("sockets", "10.0.0.1"), hardware("shm", "shm")};
  EXPECT_EQ(chosen(harmful), "kUnsupported");
  EXPECT_EQ(chosen({}), "kUnsupported");
  EXPECT_EQ(chosen(harmful, {.provider = "shm"}), "shm shm");
  EXPECT_EQ(chosen(harmful, {.provider = "tcp"}), "kInvalidArgument");
}

TEST(OfiProvider, LoopbackIsTakenOnlyWhereNothingElseIs) {
  const Candidate lo = tcp_like("net", "127.0.0.1");
  const Candidate link_local = tcp_like("net", "fe80::1");
  const Candidate v6 = tcp_like("net", "fd00::1");
  const Candidate v4 = tcp_like("net", "10.0.0.1");
  EXPECT_EQ(chosen({link_local, lo, v6, v4}), "net 10.0.0.1/24");
  EXPECT_EQ(chosen({link_local, lo, v6}), "net fd00::1/24");
  EXPECT_EQ(chosen({link_local, lo}), "net 127.0.0.1/24");
}

TEST(OfiProvider, AnInterfaceIsNamedByNameAddressOrSubnet) {
  const std::vector<Candidate> all = {tcp_like("net", "10.0.0.1"), tcp_like("net", "127.0.0.1")};
  for (const char* name : {"lo", "127.0.0.1", "127.0.0.1/24"}) {
    EXPECT_EQ(chosen(all, {.interface = name}), "net 127.0.0.1/24") << name;
  }
  const auto wrong = choose_provider(all, {.interface = "ib0"});
  EXPECT_EQ(wrong.status().code(), Errc::kInvalidArgument);
  for (const char* word : {"'ib0'", "eth0 10.0.0.1 (10.0.0.1/24)", "lo 127.0.0.1"}) {
    EXPECT_NE(wrong.status().message().find(word), std::string::npos) << wrong.status().message();
  }
}

TEST(OfiProvider, AnUnknownOneIsAnsweredWithTheList) {
  const auto wrong = choose_provider(
      std::vector{tcp_like("net", "10.0.0.1"), hardware("shm", "shm")}, {.provider = "infiniband"});
  EXPECT_NE(wrong.status().message().find("'infiniband' is not here; libfabric has: net, shm"),
            std::string::npos)
      << wrong.status().message();
}

TEST(OfiProvider, StreamsKeepOrderAndTheRestDoesNot) {
  EXPECT_TRUE(keeps_order("tcp"));
  EXPECT_TRUE(keeps_order("net"));
  for (const char* name : {"tcp;ofi_rxm", "efa", "cxi", "shm", "sockets", ""}) {
    EXPECT_FALSE(keeps_order(name)) << name;
  }
}

TEST(OfiLibrary, AHostWithoutItIsToldWhatToInstall) {
  const auto library = open_ofi_library("libep_no_such_fabric.so.1");
  EXPECT_EQ(library.status().code(), Errc::kUnsupported);
  EXPECT_NE(library.status().message().find("libfabric1"), std::string::npos);
}

TEST(OfiLibrary, AnotherLibraryIsNotTakenForIt) {
  const auto library = open_ofi_library("libm.so.6");
  EXPECT_EQ(library.status().code(), Errc::kUnsupported);
  EXPECT_NE(library.status().message().find("fi_version"), std::string::npos);
}

}  // namespace
}  // namespace ep::fabric
