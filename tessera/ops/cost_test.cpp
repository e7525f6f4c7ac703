#include "tessera/ops/cost.h"

#include <gtest/gtest.h>

namespace tessera {
namespace {

TEST(Cost, WorkIsOperationsOrElseBytes) {
  ContractionCost product;
  product.multiply_adds = 50;
  EXPECT_EQ(work(product), 100);
  EXPECT_EQ(work(ElementwiseCost{10, 2.5}), 25);
  EXPECT_EQ(work(ReductionCost{10, 2}), 12);
  EXPECT_EQ(work(CopyCost{64}), 64);
  EXPECT_EQ(work(GatherCost{4, 16}), 16);
  RecurrentCost layer;
  layer.multiply_adds = 6;
  EXPECT_EQ(work(layer), 12);
}

}  // namespace
}  // namespace tessera
