#include "tessera/base/build_id.h"

#include <gtest/gtest.h>

namespace tessera {
namespace {

TEST(BuildId, IsThereAndStays) {
  const std::string id = build_id();
  EXPECT_GE(id.size(), 8U) << id;
  EXPECT_NE(id, "unknown");
  EXPECT_EQ(build_id(), id);
}

}  // namespace
}  // namespace tessera
