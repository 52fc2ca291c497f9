// SPDX-License-Identifier: Apache-2.0
// The hello of a rank and the proofs of both sides.
#include "base/byte_io.h"
#include "fabric/bootstrap/rendezvous.h"

#include <algorithm>
#include <string_view>

namespace ep::fabric {
namespace {

constexpr std::size_t kMaxHostNameBytes = 256;

Digest hello_proof(std::span<const std::byte> fields,
                   const Nonce& host_nonce,
                   const std::string& cookie) {
  base::ByteWriter message;
  message.put_text("hello").put_bytes(host_nonce).put_bytes(fields);
  return hmac_sha256(std::as_bytes(std::span(cookie)), message.bytes());
}

}  // namespace

Bootstrap::Bytes encode_hello(const Hello& hello,
                              const Nonce& host_nonce,
                              const std::string& cookie) {
  base::ByteWriter writer;
  writer.put(hello.rank)
      .put(hello.num_ranks)
      .put(hello.pid)
      .put(hello.instance)
      .put(hello.remaining_ms)
      .put_text(hello.job_id)
      .put_text(std::string_view(hello.host_name).substr(0, kMaxHostNameBytes))
      .put_bytes(hello.nonce);
  const Digest proof = hello_proof(writer.bytes(), host_nonce, cookie);
  writer.put_bytes(proof);
  return writer.take();
}

std::optional<Hello> decode_hello(std::span<const std::byte> payload) {
  base::ByteReader reader(payload);
  Hello hello;
  hello.rank = reader.get<std::int32_t>();
  hello.num_ranks = reader.get<std::int32_t>();
  hello.pid = reader.get<std::int64_t>();
  hello.instance = reader.get<std::uint64_t>();
  hello.remaining_ms = reader.get<std::int64_t>();
  hello.job_id = reader.get_text(kMaxJobIdBytes);
  hello.host_name = reader.get_text(kMaxHostNameBytes);
  const std::span<const std::byte> nonce = reader.get_bytes(hello.nonce.size());
  reader.get_bytes(kDigestBytes);
  if (!reader.is_complete()) return std::nullopt;
  std::copy(nonce.begin(), nonce.end(), hello.nonce.begin());
  return hello;
}

bool has_valid_proof(std::span<const std::byte> payload,
                     const Nonce& host_nonce,
                     const std::string& cookie) {
  if (payload.size() < kDigestBytes) return false;
  const std::span<const std::byte> fields = payload.first(payload.size() - kDigestBytes);
  return equal_in_constant_time(hello_proof(fields, host_nonce, cookie),
                                payload.last(kDigestBytes));
}

Digest welcome_proof(const Nonce& host_nonce, const Nonce& rank_nonce, const std::string& cookie) {
  base::ByteWriter message;
  message.put_text("welcome").put_bytes(host_nonce).put_bytes(rank_nonce);
  return hmac_sha256(std::as_bytes(std::span(cookie)), message.bytes());
}

}  // namespace ep::fabric
