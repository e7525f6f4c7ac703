// How a supervisor hands poprun what its instance writes. mpirun mixes, cuts and even drops lines
// of instances that write much at once, but passes on unharmed what comes as one short line, when
// nothing else is waiting: so a packet is one.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tessera {

struct Packet {
  enum class Kind : char { output = 'o', errors = 'e', failure = 'f' };

  int64_t instance = 0;
  Kind kind = Kind::output;
  std::string text;  // any bytes, at most longest_text of them

  bool operator==(const Packet&) const = default;
};

// mpirun reads 4096 bytes at a time; each byte may need two, and mpirun puts a tag in front.
constexpr size_t longest_text = 1900;

// One line, with its end.
std::string encode(const Packet& packet);

// Of a line without its end, and with whatever mpirun put in front. None where it holds no packet.
std::optional<Packet> decode(std::string_view line);

}  // namespace tessera
