#include "tessera/kernels/gather.h"

#include <gtest/gtest.h>

#include "tessera/base/error.h"
#include "tessera/kernels/test_tensor.h"

namespace tessera::kernels {
namespace {

TEST(Slices, OutsideTheDimensionAreRefused) {
  TestTensor<int32_t> high({1}, {3}), low({1}, {-1});
  ThreadPool pool(1);
  EXPECT_THROW(slices_along(Shape{3, 2}, 0, high.view(), pool), Error);
  EXPECT_THROW(slices_along(Shape{3, 2}, 0, low.view(), pool), Error);
}

TEST(Indices, CountFromTheEndWhenNegative) {
  TestTensor<float> x({3, 2}, {0, 1, 2, 3, 4, 5}), out({2, 2});
  TestTensor<int32_t> rows({2}, {-1, 0}), outside({2}, {0, -4});
  ThreadPool pool(1);
  const TensorView indices[] = {rows.view()};
  take(x.view(), places_of_indices(x.view().sizes, indices, pool), out.view(), pool);
  EXPECT_EQ(out.values, (std::vector<float>{4, 5, 0, 1}));
  const TensorView bad[] = {outside.view()};
  EXPECT_THROW(places_of_indices(x.view().sizes, bad, pool), Error);
}

TEST(Indices, ThatAreNotNeighboursComeFirst) {
  TestTensor<int32_t> x({2, 3, 2}), out({1, 3});
  for (size_t i = 0; i < 12; ++i) x.values[i] = static_cast<int32_t>(i);
  TestTensor<int32_t> first({1}, {1}), last({1}, {0});
  ThreadPool pool(1);
  const TensorView indices[] = {first.view(), no_tensor(), last.view()};
  take(x.view(), places_of_indices(x.view().sizes, indices, pool), out.view(), pool);
  EXPECT_EQ(out.values, (std::vector<int32_t>{6, 8, 10}));
}

TEST(PutAdd, SumsWhatGoesToOnePlace) {
  TestTensor<float> values({3, 2}, {1, 2, 3, 4, 5, 6}), out({2, 2}, {10, 10, 10, 10});
  TestTensor<int32_t> index({3}, {1, 1, 0});
  ThreadPool pool(2);
  const Places places = slices_along(out.view().sizes, 0, index.view(), pool);
  put_add(values.view(), places, 2, nullptr, out.view(), pool);
  EXPECT_EQ(out.values, (std::vector<float>{20, 22, 18, 22}));
}

TEST(Put, KeepsTheLastOfSeveral) {
  TestTensor<float> values({3}, {1, 2, 3}), out({2});
  TestTensor<int32_t> index({3}, {0, 1, 0});
  ThreadPool pool(1);
  put(values.view(), slices_along(out.view().sizes, 0, index.view(), pool), out.view(), pool);
  EXPECT_EQ(out.values, (std::vector<float>{3, 2}));
}

TEST(Gather, RefusesAnIndexOutsideTheLine) {
  TestTensor<float> x({2, 2}, {1, 2, 3, 4}), out({2, 1});
  TestTensor<int32_t> index({2, 1}, {1, 2});
  ThreadPool pool(1);
  EXPECT_THROW(gather(x.view(), 1, index.view(), out.view(), pool), Error);
}

TEST(Scatter, UsesTheFirstPartOfALargerSource) {
  TestTensor<float> source({2, 3}, {1, 2, 3, 4, 5, 6}), out({2, 2});
  TestTensor<int32_t> index({2, 1}, {1, 0});
  ThreadPool pool(1);
  scatter({.index = index.view(), .source = source.view(), .dim = 1}, out.view(), pool);
  EXPECT_EQ(out.values, (std::vector<float>{0, 1, 4, 0}));
}

}  // namespace
}  // namespace tessera::kernels
