#include <gtest/gtest.h>

#include "tessera/ops/test_run.h"

namespace tessera {
namespace {

using Ints = std::vector<int64_t>;
using Values = std::vector<double>;

TEST(Cat, LeavesEmptyVectorsOutWhateverTheOthersRank) {
  const OpRun run(
      "cat",
      {RunTensor::reals({0}, {}), RunTensor::reals({1, 2}, {1, 2}), RunTensor::reals({1, 1}, {3})},
      {{"dim", int64_t{1}}});
  EXPECT_EQ(run.results[0].type.shape, (Shape{1, 3}));
  EXPECT_EQ(run.results[0].values(), (Values{1, 2, 3}));
}

TEST(Cat, RefusesShapesThatDifferElsewhere) {
  EXPECT_THROW(OpRun("cat", {RunTensor::reals({1, 2}, {1, 2}), RunTensor::reals({1, 1}, {3})}),
               Error);
}

TEST(Roll, WithoutDimensionsRollsTheFlatTensor) {
  const auto x = RunTensor::reals({2, 2}, {1, 2, 3, 4});
  EXPECT_EQ(OpRun("roll", {x}, {{"shifts", Ints{5}}}).results[0].values(), (Values{4, 1, 2, 3}));
  EXPECT_EQ(OpRun("roll", {x}, {{"shifts", Ints{-1, 1}}, {"dims", Ints{1, 1}}}).results[0].values(),
            (Values{1, 2, 3, 4}));
}

TEST(ConstantPad, CropsWhereNegative) {
  const OpRun run("constant_pad_nd", {RunTensor::reals({3}, {1, 2, 3})},
                  {{"pad", Ints{-1, 2}}, {"value", 9.0}});
  EXPECT_EQ(run.results[0].values(), (Values{2, 3, 9, 9}));
}

TEST(Triangles, ShareNothingWhenDiagonalsMeet) {
  const auto x = RunTensor::reals({2, 3}, {1, 2, 3, 4, 5, 6});
  EXPECT_EQ(OpRun("tril", {x}, {{"diagonal", int64_t{0}}}).results[0].values(),
            (Values{1, 0, 0, 4, 5, 0}));
  EXPECT_EQ(OpRun("triu", {x}, {{"diagonal", int64_t{1}}}).results[0].values(),
            (Values{0, 2, 3, 0, 0, 6}));
  EXPECT_EQ(OpRun("triu", {x}, {{"diagonal", int64_t{9}}}).results[0].values(), Values(6, 0));
}

}  // namespace
}  // namespace tessera
