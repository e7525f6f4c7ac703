#include "tessera/backend/cpu/kernels/copy.h"

#include <gtest/gtest.h>

#include <numeric>

#include "tessera/backend/cpu/kernels/needs_avx2_for_test.h"
#include "tessera/backend/cpu/target_for_test.h"
#include "tessera/base/cpu_level_for_test.h"

namespace tessera::cpu {
namespace {

class Copy : public NeedsAvx2 {};

void expect_copies(const Geometry& from, const std::string& kernel) {
  SCOPED_TRACE(tessera::to_string(TensorType{DType::f32, from.shape}));
  std::vector<float> source(static_cast<size_t>(extent(from)));
  std::iota(source.begin(), source.end(), 1.0F);
  const auto count = static_cast<size_t>(numel(from.shape));
  std::vector<float> wanted(count, -1), got(count, -1);
  const Strides to = contiguous_strides(from.shape);
  const auto bytes_of = [](std::vector<float>& v) {
    return reinterpret_cast<std::byte*>(v.data());
  };
  const TensorView input{bytes_of(source) + from.offset * int64_t{sizeof(float)}, DType::f32,
                         from.shape, from.strides};
  ThreadPool pool(2, level_for_test());
  copy_dense(input, bytes_of(wanted), pool);
  const KernelChoice choice = choose_copy(DType::f32, from, target_for_test());
  EXPECT_EQ(choice.name, kernel);
  const TensorView output{bytes_of(got), DType::f32, from.shape, to};
  choice.kernel->run(
      {.inputs = {&input, 1}, .outputs = {&output, 1}, .attrs = {}, .pool = pool, .rng = {}}, {});
  EXPECT_EQ(got, wanted);
}

TEST_F(Copy, ConversionsOfLayoutsTranspose) {
  for (const Shape& shape : {Shape{16, 24, 5, 7}, Shape{8, 8, 1, 9}, Shape{8, 16, 40, 50}}) {
    for (const Layout& layout : {channels_layout, batch_layout, weights_layout}) {
      expect_copies(physical_geometry(layout, dense(shape)), "transposing");
      expect_copies(logical_order(layout, shape), "transposing");
    }
  }
}

TEST_F(Copy, OtherStridesAreCopiedToo) {
  expect_copies({{20, 30}, {1, 20}, 0}, "transposing");
  expect_copies({{3, 30}, {1, 3}, 0}, "strided");
  expect_copies({{4, 5, 6}, {60, 12, 2}, 1}, "strided");
  expect_copies({{9, 30, 11}, {1, 0, 9}, 0}, "transposing");
  expect_copies(dense({4, 5}), "strided");
}

}  // namespace
}  // namespace tessera::cpu
