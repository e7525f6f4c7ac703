#include "tessera/launch/packet.h"

#include <gtest/gtest.h>

namespace tessera {
namespace {

TEST(Packet, AnyBytesAreOneShortLine) {
  std::string all;
  for (int i = 0; i < 256; ++i) all += static_cast<char>(i);
  for (const std::string& text : {std::string(), std::string("a\nb\\n\n"), all, all + "\\"}) {
    const Packet packet = {12, Packet::Kind::errors, text};
    const std::string line = encode(packet);
    EXPECT_EQ(line.find_first_of(std::string("\n\r\0", 3)), line.size() - 1);
    EXPECT_EQ(decode(line.substr(0, line.size() - 1)), packet);
    EXPECT_EQ(decode("[1,12]<stderr>: " + line.substr(0, line.size() - 1)), packet);
  }
  const Packet longest = {123456, Packet::Kind::output, std::string(longest_text, '\n')};
  EXPECT_LT(encode(longest).size(), 4096u);
}

TEST(Packet, OtherLinesAreNone) {
  for (const char* line : {"", "text", "\x1e",
                           "\x1e"
                           "1",
                           "\x1e"
                           "1x",
                           "\x1ex"}) {
    EXPECT_FALSE(decode(line)) << line;
  }
}

}  // namespace
}  // namespace tessera
