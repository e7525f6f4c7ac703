#include "tessera/launch/packet.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <utility>

namespace tessera {
namespace {

constexpr char mark = '\x1e';  // begins a packet; programs do not write it, or it is escaped

// Line ends would be ends of the packet, and to C text ends at a zero.
constexpr std::array<std::pair<char, char>, 5> escapes = {
    {{'\\', '\\'}, {'\n', 'n'}, {'\r', 'r'}, {'\0', '0'}, {mark, 'e'}}};

std::string escaped(std::string_view text) {
  std::string result;
  for (const char c : text) {
    char letter = 0;
    for (const auto& [plain, code] : escapes) letter = plain == c ? code : letter;
    if (letter != 0) result += '\\';
    result += letter != 0 ? letter : c;
  }
  return result;
}

std::string unescaped(std::string_view text) {
  std::string result;
  for (size_t i = 0; i < text.size(); ++i) {
    char c = text[i];
    if (c == '\\' && i + 1 < text.size()) {
      ++i;
      for (const auto& [plain, code] : escapes) c = code == text[i] ? plain : c;
    }
    result += c;
  }
  return result;
}

}  // namespace

std::string encode(const Packet& packet) {
  return fmt::format("{}{}{}{}\n", mark, packet.instance, static_cast<char>(packet.kind),
                     escaped(packet.text));
}

std::optional<Packet> decode(std::string_view line) {
  const size_t begin = line.find(mark);
  if (begin == std::string_view::npos) return std::nullopt;
  Packet packet;
  const char* end = line.data() + line.size();
  const auto [kind, error] = std::from_chars(line.data() + begin + 1, end, packet.instance);
  if (error != std::errc() || kind == end) return std::nullopt;
  if (std::string_view("oef").find(*kind) == std::string_view::npos) return std::nullopt;
  packet.kind = static_cast<Packet::Kind>(*kind);
  packet.text = unescaped({kind + 1, end});
  return packet;
}

}  // namespace tessera
