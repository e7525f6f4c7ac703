#include "tessera/ir/attributes.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tessera/base/error.h"

namespace tessera {
namespace {

Blob blob(std::initializer_list<int> values) {
  auto bytes = std::make_shared<std::vector<std::byte>>();
  for (const int value : values) bytes->push_back(static_cast<std::byte>(value));
  return bytes;
}

TEST(Attributes, StaySortedWhateverTheOrder) {
  Attrs a, b;
  a.set("z", int64_t{1});
  a.set("a", 2.0);
  b.set("a", 2.0);
  b.set("z", int64_t{1});
  EXPECT_TRUE(a == b);
  EXPECT_EQ(a.begin()->first, "a");
}

TEST(Attributes, SetReplacesAndEraseRemoves) {
  Attrs attrs{{"a", int64_t{1}}};
  attrs.set("a", true);
  EXPECT_TRUE(attrs.flag("a"));
  attrs.erase("a");
  attrs.erase("b");
  EXPECT_TRUE(attrs.empty());
}

TEST(Attributes, GettersRefuseMissingAndOtherTypes) {
  const Attrs attrs{{"a", int64_t{1}}};
  EXPECT_EQ(attrs.integer("a"), 1);
  EXPECT_THROW(attrs.number("a"), InternalError);
  EXPECT_THROW(attrs.integer("b"), InternalError);
}

TEST(Attributes, CompareNumbersByBitsAndBlobsByContent) {
  EXPECT_TRUE(equal(std::nan(""), std::nan("")));
  EXPECT_FALSE(equal(0.0, -0.0));
  EXPECT_FALSE(equal(int64_t{1}, 1.0));
  EXPECT_FALSE(equal(std::vector<double>{0.0}, std::vector<double>{-0.0}));
  EXPECT_TRUE(equal(blob({1, 2}), blob({1, 2})));
  EXPECT_FALSE(equal(blob({1, 2}), blob({1, 3})));
}

}  // namespace
}  // namespace tessera
