#include "tessera/base/json_text.h"

#include <gtest/gtest.h>

namespace tessera {
namespace {

TEST(JsonText, EscapesWhatJsonWantsEscaped) {
  EXPECT_EQ(json_string("conv @ \"a\\b\".py"), R"("conv @ \"a\\b\".py")");
  EXPECT_EQ(json_string("two\nlines\t\x01"), R"("two\nlines\u0009\u0001")");
  EXPECT_EQ(json_string("Größe"), "\"Größe\"");
}

}  // namespace
}  // namespace tessera
