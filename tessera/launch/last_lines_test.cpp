#include "tessera/launch/last_lines.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace tessera {
namespace {

TEST(LastLines, KeepsTheEnd) {
  LastLines lines;
  EXPECT_EQ(lines.text(), "");
  for (int i = 0; i < 100; ++i) lines.add(fmt::format("line {}\n", i));
  EXPECT_TRUE(lines.text().starts_with("line 60\n")) << lines.text();
  EXPECT_TRUE(lines.text().ends_with("line 99\n"));
  lines.add("and ");
  lines.add("half");
  EXPECT_TRUE(lines.text().starts_with("line 61\n"));
  EXPECT_TRUE(lines.text().ends_with("line 99\nand half"));
}

TEST(LastLines, AreNotMuch) {
  LastLines lines;
  for (int i = 0; i < 100; ++i) lines.add(std::string(1000, 'x') + "\n");
  EXPECT_LE(lines.text().size(), 8192u);
  EXPECT_EQ(lines.text().size() % 1001, 0u);  // whole lines
  LastLines one;
  for (int i = 0; i < 100; ++i) one.add(std::string(1000, 'x'));
  EXPECT_EQ(one.text().size(), 8192u);
}

}  // namespace
}  // namespace tessera
