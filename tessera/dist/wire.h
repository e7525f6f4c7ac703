// How messages between instances look: a header of fixed size, then what it says.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <utility>

#include "tessera/base/dtype.h"
#include "tessera/base/instances.h"
#include "tessera/base/reduction.h"
#include "tessera/dist/transport.h"

namespace tessera::dist {

enum class Word : uint32_t {
  up,       // of a sum: the values of all members before
  down,     // of a sum: those of all
  part,     // of a gathering: what one member says
  ask,      // has the receiver come to this operation?
  answer,   // ... no, and what it does instead
  goodbye,  // the sender's program has ended as it should
  failed    // the sender cannot go on; why
};

// Names an operation the same on all of its members.
struct OperationKey {
  uint64_t channel = 0, number = 0;

  auto operator<=>(const OperationKey&) const = default;
};

struct Header {
  static constexpr uint32_t right_magic = 0x54535231;  // "TSR1"

  uint32_t magic = right_magic;
  Word word = Word::goodbye;
  OperationKey key = {};
  uint64_t total = 0;   // elements of a sum, bytes of a part
  uint64_t offset = 0;  // of what this message has of it
  StepStamp stamp = {};
  int32_t origin = 0;  // whose part it is, by its place among the members
  DType dtype = DType::f32;
  Reduction reduction = Reduction::sum;
  uint16_t unused = 0;
};

// So that what follows it is aligned for every type.
inline constexpr size_t header_bytes = 128;
static_assert(sizeof(Header) <= header_bytes);

inline Message make_message(int peer, const Header& header, size_t payload) {
  Message message{peer, header_bytes + payload,
                  std::make_unique_for_overwrite<std::byte[]>(header_bytes + payload)};
  std::memset(message.data.get(), 0, header_bytes);
  std::memcpy(message.data.get(), &header, sizeof header);
  return message;
}

inline Message make_message(int peer, const Header& header, std::string_view text) {
  Message message = make_message(peer, header, text.size());
  if (!text.empty()) std::memcpy(message.data.get() + header_bytes, text.data(), text.size());
  return message;
}

inline Header header_of(const Message& message) {
  Header header;
  std::memcpy(&header, message.data.get(), sizeof header);
  return header;
}

inline void set_header(Message& message, const Header& header) {
  std::memcpy(message.data.get(), &header, sizeof header);
}

inline std::span<std::byte> payload_of(const Message& message) {
  return {message.data.get() + header_bytes, message.size - header_bytes};
}

inline std::string_view text_of(const Message& message) {
  const auto payload = payload_of(message);
  return {reinterpret_cast<const char*>(payload.data()), payload.size()};
}

}  // namespace tessera::dist
