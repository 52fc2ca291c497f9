// SPDX-License-Identifier: Apache-2.0
// The 32 bits that travel with a write of the engine. Nothing of the application is in them, so no
// maximum of it is bounded by their widths.
//
//   bits   31..29  28..22   21..14  13..0
//   field  kind    context  epoch   payload
#pragma once

#include <cstdint>
#include <optional>

namespace ep::fabric {

enum class ImmediateKind : std::uint8_t {
  kPut = 1,     ///< a part of a put; counts in its epoch
  kPutSignal,   ///< a whole put, or its last write on an ordered network; adds 1 to slot `payload`
  kPutPart,     ///< a part of the put whose weak record has number `payload`
  kRecord,      ///< the record of the strong signal that closes the epoch; its number is `payload`
  kPartRecord,  ///< the weak record with number `payload`
  kAck,         ///< an acknowledgement in cell `payload`
  kControl,     ///< `payload` says what: ControlKind
};

/// Where the payload of kControl is split.
enum class ControlKind : std::uint8_t {
  kHello = 1,    ///< argument: hello_argument of the sender
  kAckSeen,      ///< argument: the cell of an acknowledgement that was read
  kPing,         ///< answer me
  kPong,         ///< answer to a ping
  kMessage,      ///< argument: the cell that holds a message
  kMessageSeen,  ///< argument: the cell of a message that was read
};

struct Immediate {
  ImmediateKind kind = ImmediateKind::kPut;
  int context = 0;
  std::uint8_t epoch = 0;     ///< low bits of the sender's epoch
  std::uint16_t payload = 0;  ///< low bits of a number, or a slot

  friend bool operator==(const Immediate&, const Immediate&) = default;
};

inline constexpr int kContextBits = 7;
inline constexpr int kEpochBits = 8;
inline constexpr int kPayloadBits = 14;
inline constexpr int kControlArgumentBits = 10;

inline constexpr int kMaxNetContexts = 1 << kContextBits;
inline constexpr std::uint32_t kNumEpochIds = 1U << kEpochBits;
inline constexpr std::uint32_t kNumPayloads = 1U << kPayloadBits;
inline constexpr std::uint32_t kNumControlArguments = 1U << kControlArgumentBits;

constexpr std::uint8_t epoch_bits(std::uint64_t epoch) {
  return static_cast<std::uint8_t>(epoch % kNumEpochIds);
}
constexpr std::uint16_t payload_bits(std::uint64_t number) {
  return static_cast<std::uint16_t>(number % kNumPayloads);
}

constexpr std::uint32_t encode(const Immediate& immediate) {
  std::uint32_t bits = static_cast<std::uint32_t>(immediate.kind);
  bits = bits << kContextBits | static_cast<std::uint32_t>(immediate.context);
  bits = bits << kEpochBits | immediate.epoch;
  return bits << kPayloadBits | immediate.payload;
}

/// Empty for bits that no rank sends.
constexpr std::optional<Immediate> decode_immediate(std::uint32_t bits) {
  Immediate immediate;
  immediate.payload = static_cast<std::uint16_t>(bits % kNumPayloads);
  bits >>= kPayloadBits;
  immediate.epoch = static_cast<std::uint8_t>(bits % kNumEpochIds);
  bits >>= kEpochBits;
  immediate.context = static_cast<int>(bits % kMaxNetContexts);
  const std::uint32_t kind = bits >> kContextBits;
  if (kind == 0) return std::nullopt;
  immediate.kind = static_cast<ImmediateKind>(kind);
  return immediate;
}

struct Control {
  ControlKind kind = ControlKind::kHello;
  std::uint32_t argument = 0;
};

constexpr std::uint16_t encode(const Control& control) {
  return static_cast<std::uint16_t>(
      static_cast<std::uint32_t>(control.kind) << kControlArgumentBits | control.argument);
}

constexpr std::optional<Control> decode_control(std::uint16_t payload) {
  const std::uint32_t kind = static_cast<std::uint32_t>(payload) >> kControlArgumentBits;
  if (kind < static_cast<std::uint32_t>(ControlKind::kHello) ||
      kind > static_cast<std::uint32_t>(ControlKind::kMessageSeen)) {
    return std::nullopt;
  }
  return Control{static_cast<ControlKind>(kind), payload % kNumControlArguments};
}

}  // namespace ep::fabric
