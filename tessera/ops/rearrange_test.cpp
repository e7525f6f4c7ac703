#include <gtest/gtest.h>

#include "tessera/ops/run_op_for_test.h"

namespace tessera {
namespace {

using Ints = std::vector<int64_t>;
using Floats = std::vector<float>;

TEST(Cat, LeavesEmptyVectorsOutWhateverTheOthersRank) {
  const OpRun run("cat", {floats({0}, {}), floats({1, 2}, {1, 2}), floats({1, 1}, {3})},
                  {{"dim", int64_t{1}}});
  EXPECT_EQ(run[0].type.shape, (Shape{1, 3}));
  EXPECT_EQ(run[0].elements<float>(), (Floats{1, 2, 3}));
}

TEST(Cat, RefusesShapesThatDifferElsewhere) {
  EXPECT_THROW(OpRun("cat", {floats({1, 2}, {1, 2}), floats({1, 1}, {3})}), Error);
}

TEST(Roll, WithoutDimensionsRollsTheFlatTensor) {
  const auto x = floats({2, 2}, {1, 2, 3, 4});
  EXPECT_EQ(OpRun("roll", {x}, {{"shifts", Ints{5}}})[0].elements<float>(), (Floats{4, 1, 2, 3}));
  EXPECT_EQ(
      OpRun("roll", {x}, {{"shifts", Ints{-1, 1}}, {"dims", Ints{1, 1}}})[0].elements<float>(),
      (Floats{1, 2, 3, 4}));
}

TEST(ConstantPad, CropsWhereNegative) {
  const OpRun run("constant_pad_nd", {floats({3}, {1, 2, 3})},
                  {{"pad", Ints{-1, 2}}, {"value", 9.0}});
  EXPECT_EQ(run[0].elements<float>(), (Floats{2, 3, 9, 9}));
}

TEST(Triangles, ShareNothingWhenDiagonalsMeet) {
  const auto x = floats({2, 3}, {1, 2, 3, 4, 5, 6});
  EXPECT_EQ(OpRun("tril", {x}, {{"diagonal", int64_t{0}}})[0].elements<float>(),
            (Floats{1, 0, 0, 4, 5, 0}));
  EXPECT_EQ(OpRun("triu", {x}, {{"diagonal", int64_t{1}}})[0].elements<float>(),
            (Floats{0, 2, 3, 0, 0, 6}));
  EXPECT_EQ(OpRun("triu", {x}, {{"diagonal", int64_t{9}}})[0].elements<float>(), Floats(6, 0));
}

}  // namespace
}  // namespace tessera
