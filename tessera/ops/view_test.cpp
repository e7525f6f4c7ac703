#include <gtest/gtest.h>

#include "tessera/base/cpu_level_for_test.h"
#include "tessera/ops/run_op_for_test.h"

namespace tessera {
namespace {

using Ints = std::vector<int64_t>;
using Floats = std::vector<float>;
const HostTensor x = floats({2, 3}, {0, 1, 2, 3, 4, 5});

TEST(View, ReadsAnotherGeometry) {
  const OpRun run("view", {x},
                  {{"shape", Ints{2, 2}}, {"strides", Ints{0, 3}}, {"offset", int64_t{1}}});
  EXPECT_EQ(run[0].elements<float>(), (Floats{1, 4, 1, 4}));
}

TEST(View, MustStayInside) {
  EXPECT_THROW(OpRun("view", {x}, {{"shape", Ints{4}}, {"strides", Ints{2}}}), Error);
  EXPECT_THROW(OpRun("view", {x}, {{"shape", Ints{2}}, {"strides", Ints{-1}}}), Error);
  EXPECT_NO_THROW(OpRun("view", {x}, {{"shape", Ints{3}}, {"strides", Ints{2}}}));
}

TEST(WriteView, LeavesTheRestAsItWas) {
  const OpRun run("write_view", {x, floats({2}, {8, 9})},
                  {{"strides", Ints{3}}, {"offset", int64_t{2}}});
  EXPECT_EQ(run[0].elements<float>(), (Floats{0, 1, 8, 3, 4, 9}));
}

TEST(WriteView, WritesOverItsBaseWhereTheyShareMemory) {
  float memory[] = {1, 2, 3};
  float value[] = {9};
  const Shape sizes{3}, one{1};
  const Strides strides{1};
  const TensorView base{reinterpret_cast<std::byte*>(memory), DType::f32, sizes, strides, true};
  const TensorView source{reinterpret_cast<std::byte*>(value), DType::f32, one, strides, true};
  const TensorView inputs[] = {base, source};
  const TensorView outputs[] = {base};
  ThreadPool pool(1, level_for_test());
  const Attrs attrs = {{"strides", Ints{1}}, {"offset", int64_t{1}}};
  op("write_view")
      .cpu({.inputs = inputs, .outputs = outputs, .attrs = attrs, .pool = pool, .rng = {}});
  EXPECT_EQ(std::vector<float>(memory, memory + 3), (std::vector<float>{1, 9, 3}));
}

TEST(WriteView, RefusesManyValuesForOnePlace) {
  EXPECT_THROW(OpRun("write_view", {x, floats({2}, {8, 9})}, {{"strides", Ints{0}}}), Error);
}

TEST(Constant, NeedsAllItsBytes) {
  const auto data = std::make_shared<const std::vector<std::byte>>(7);
  EXPECT_THROW(OpRun("constant", {}, {{"shape", Ints{2}}, {"dtype", DType::f32}, {"data", data}}),
               Error);
}

TEST(SliceBackward, ClampsAsSlicesDo) {
  const OpRun run("slice_backward", {floats({2}, {7, 8})},
                  {{"input_sizes", Ints{4}},
                   {"dim", int64_t{0}},
                   {"start", int64_t{-3}},
                   {"end", int64_t{1} << 62},
                   {"step", int64_t{2}}});
  EXPECT_EQ(run[0].elements<float>(), (Floats{0, 7, 0, 8}));
}

TEST(SelectBackward, RefusesAnIndexOutside) {
  const auto grad = floats({}, {7});
  const auto attrs = [](int64_t index) {
    return Attrs{{"input_sizes", Ints{3}}, {"dim", int64_t{0}}, {"index", index}};
  };
  EXPECT_EQ(OpRun("select_backward", {grad}, attrs(-1))[0].elements<float>(), (Floats{0, 0, 7}));
  EXPECT_THROW(OpRun("select_backward", {grad}, attrs(3)), Error);
}

}  // namespace
}  // namespace tessera
