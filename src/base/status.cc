// SPDX-License-Identifier: Apache-2.0
// Names of error codes and the text of a Status.
#include <ep/status.h>

namespace ep {

std::string_view name_of(Errc code) {
  switch (code) {
    case Errc::kOk:
      return "kOk";
    case Errc::kInvalidArgument:
      return "kInvalidArgument";
    case Errc::kUnsupported:
      return "kUnsupported";
    case Errc::kOutOfMemory:
      return "kOutOfMemory";
    case Errc::kCuda:
      return "kCuda";
    case Errc::kNccl:
      return "kNccl";
    case Errc::kFabric:
      return "kFabric";
    case Errc::kPeerTimeout:
      return "kPeerTimeout";
    case Errc::kAborted:
      return "kAborted";
    case Errc::kInternal:
      return "kInternal";
  }
  return "unknown";
}

std::string Status::to_string() const {
  std::string text(name_of(code_));
  if (!message_.empty()) text.append(": ").append(message_);
  return text;
}

}  // namespace ep
