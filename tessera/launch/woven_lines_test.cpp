#include "tessera/launch/woven_lines.h"

#include <gtest/gtest.h>

namespace tessera {
namespace {

const WovenLines::Time start{std::chrono::seconds(100)};
const WovenLines::Time later = start + std::chrono::seconds(1);

TEST(WovenLines, ArePutTogether) {
  WovenLines lines;
  EXPECT_EQ(lines.add("a:", "1\n2\n\nthr", start), "a:1\na:2\na:\n");
  EXPECT_EQ(lines.add("b:", "other\n", start), "b:other\n");
  EXPECT_TRUE(lines.has_begun());
  EXPECT_EQ(lines.add("a:", "ee\n", start), "a:three\n");
  EXPECT_FALSE(lines.has_begun());
  EXPECT_EQ(lines.add_line("own"), "own\n");
}

TEST(WovenLines, AreShownBeforeTheyAreOver) {
  WovenLines lines;
  lines.add("a:", "50%\r", start);
  lines.add("b:", "x", later);
  EXPECT_EQ(lines.show_begun(start), "a:50%\r");
  EXPECT_EQ(lines.show_begun(start), "");
  lines.add("a:", "60%\r", later);
  EXPECT_EQ(lines.show_begun(later), "60%\r\nb:x");
  EXPECT_EQ(lines.add("a:", "70%\n", later), "\na:70%\n");
  EXPECT_EQ(lines.add("b:", "y\n", later), "b:y\n");
  lines.add("b:", "z", later);
  lines.show_begun(later);
  EXPECT_EQ(lines.add("b:", "\n", later), "\n");
  EXPECT_EQ(lines.add_line("own"), "own\n");
}

TEST(WovenLines, WithoutEndAreNotKept) {
  WovenLines lines;
  lines.add("a:", std::string(100000, 'x'), later);
  EXPECT_EQ(lines.show_begun(start).size(), 100002u);
}

}  // namespace
}  // namespace tessera
