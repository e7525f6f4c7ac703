#include <gtest/gtest.h>

#include "tessera/backend/cpu/kernels/needs_avx2_for_test.h"
#include "tessera/backend/cpu/kernels/operator_trial_for_test.h"
#include "tessera/backend/cpu/target_for_test.h"
#include "tessera/base/cpu_level_for_test.h"
#include "tessera/base/error.h"

namespace tessera::cpu {
namespace {

class Cat : public NeedsAvx2 {};

struct Case {
  std::vector<Shape> parts;
  int64_t dim;
  Layout layout = {};
  DType dtype = DType::f32;
};

TEST_F(Cat, AgreesWithTheReference) {
  const std::vector<Case> cases = {
      {{{2, 3}, {1, 3}, {4, 3}}, 0},
      {{{2, 3, 4}, {2, 5, 4}}, -2},
      {{{1, 40, 33, 31}, {1, 24, 33, 31}}, 1},
      {{{3, 8}, {3, 4}}, 1, {}, DType::i32},
      {{{2, 16}, {2, 32}}, 1, {}, DType::boolean},
      {{{1, 8, 5, 7}, {1, 16, 5, 7}}, 1, channels_layout},
      {{{3, 8, 5, 7}, {3, 24, 5, 7}, {3, 8, 5, 7}}, -3, channels_layout},
      {{{3, 16, 5, 7}, {3, 16, 4, 7}}, 2, channels_layout},
      {{{3, 16, 5, 7}, {3, 16, 5, 2}}, -1, channels_layout},
      {{{1, 16, 5, 7}, {2, 16, 5, 7}}, 0, channels_layout},
      {{{8, 3, 5, 7}, {8, 2, 5, 7}}, 1, batch_layout},
  };
  for (const Case& c : cases) {
    std::vector<TrialOperand> operands;
    for (const Shape& shape : c.parts) {
      SCOPED_TRACE(tessera::to_string(shape));
      operands.push_back({shape, c.layout, -100, 100, c.dtype});
    }
    OperatorTrial("cat", operands, {{"dim", c.dim}}, {c.layout}).expect_agrees("runs", 0);
  }
}

TEST_F(Cat, PartsWithoutElementsAreLeftToTheReference) {
  OperatorTrial("cat", {{{2, 40, 3, 5}}, {{0}}, {{2, 24, 3, 5}}, {{2, 0, 3, 5}}}, {{"dim", 1}})
      .expect_agrees("reference", 0);
}

TEST_F(Cat, LayoutsThatDifferAreRefused) {
  EXPECT_THROW(OperatorTrial("cat", {{{1, 8, 4, 4}, channels_layout}, {{1, 8, 4, 4}}}, {{"dim", 1}},
                             {channels_layout}),
               InternalError);
}

// Parts that are views, as the gradient of attention joins them.
TEST_F(Cat, PartsMayHaveAnyStrides) {
  const Geometry in_runs{{6, 2, 4, 8}, {8, 192, 48, 1}, 0};
  const Geometry transposed{{13, 3, 20}, {1, 300, 14}, 0};
  for (const Geometry& view : {in_runs, transposed}) {
    Shape shape = view.shape;
    shape.back() *= 2;
    const KernelOperand part{DType::f32, view}, out{DType::f32, dense(shape)};
    const std::vector<KernelOperand> inputs = {part, part}, outputs = {out};
    const Attrs attrs = {{"dim", -1}};
    const KernelChoice choice =
        choose_kernel({op("cat"), attrs, inputs, outputs, target_for_test()});
    EXPECT_EQ(choice.name, "runs");

    const auto size = static_cast<size_t>(numel(shape));
    std::vector<float> from(static_cast<size_t>(extent(view))), to(size), wanted(size);
    for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<float>(i);
    const auto view_of = [](std::vector<float>& data, const Geometry& geometry) {
      return TensorView{reinterpret_cast<std::byte*>(data.data()), DType::f32, geometry.shape,
                        geometry.strides};
    };
    const std::vector<TensorView> read = {view_of(from, view), view_of(from, view)};
    const std::vector<TensorView> written = {view_of(to, out.geometry)};
    const std::vector<TensorView> reference = {view_of(wanted, out.geometry)};
    ThreadPool pool(2, level_for_test());
    choice.kernel->run(
        {.inputs = read, .outputs = written, .attrs = attrs, .pool = pool, .rng = {}}, {});
    reference_kernel(op("cat")).kernel->run(
        {.inputs = read, .outputs = reference, .attrs = attrs, .pool = pool, .rng = {}}, {});
    EXPECT_EQ(to, wanted);
  }
}

}  // namespace
}  // namespace tessera::cpu
