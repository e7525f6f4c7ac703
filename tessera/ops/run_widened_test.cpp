// Every row with a reference kernel, on its samples in half precision: the result must be that of
// f32, from the same numbers, rounded once.
#include "tessera/ops/run_widened.h"

#include <gtest/gtest.h>

#include <limits>

#include "tessera/base/allocations_for_test.h"
#include "tessera/base/error.h"
#include "tessera/ops/builder.h"
#include "tessera/ops/registry.h"
#include "tessera/ops/run_reference.h"
#include "tessera/ops/sample_tensors_for_test.h"

namespace tessera {
namespace {

constexpr RngState rng{.seed = 42, .step = 3};

TensorType in_half(TensorType type) {
  if (type.dtype == DType::f32) type.dtype = DType::f16;
  return type;
}

Sample in_half(Sample sample) {
  for (SampleOperand& operand : sample.operands) operand.type = in_half(operand.type);
  return sample;
}

bool has_floats(const Sample& sample) {
  return std::any_of(sample.operands.begin(), sample.operands.end(),
                     [](const SampleOperand& operand) { return operand.type.dtype == DType::f32; });
}

// The same numbers as f32. The tensor is dense.
Tensor widened(Tensor tensor) {
  if (tensor.type().dtype != DType::f16) return tensor;
  Tensor wide({DType::f32, tensor.type().shape}, contiguous_strides(tensor.type().shape),
              std::byte{0});
  const auto count = static_cast<size_t>(tensor.view().numel());
  widen({tensor.view().as<Half>(), count}, {wide.view().as<float>(), count});
  return wide;
}

std::vector<std::byte> rounded_bits(Tensor tensor) {
  const TensorView view = tensor.view();
  const auto count = static_cast<size_t>(view.numel());
  if (view.dtype != DType::f32) return {view.data, view.data + count * size_of(view.dtype)};
  std::vector<std::byte> bits(count * sizeof(Half));
  for (size_t i = 0; i < count; ++i) {
    const Half half = to_half(view.as<float>()[i]);
    std::memcpy(bits.data() + i * sizeof(Half), &half, sizeof(Half));
  }
  return bits;
}

class RunWidened : public testing::TestWithParam<const OpDef*> {
 protected:
  const OpDef& row() const { return *GetParam(); }

  std::vector<Tensor> results_of(const Sample& sample, bool half) const {
    std::vector<Tensor> results;
    for (TensorType type : infer(row(), types_of(sample), completed(row(), sample.attrs))) {
      type.dtype = narrowed(type.dtype);
      if (half) type = in_half(type);
      results.emplace_back(type, contiguous_strides(type.shape), std::byte{0xCD});
    }
    return results;
  }

  // Rows that round to halves themselves have no f32 to widen to.
  bool makes_halves(const Sample& sample) const {
    const auto types = infer(row(), types_of(sample), completed(row(), sample.attrs));
    return std::any_of(types.begin(), types.end(),
                       [](const TensorType& type) { return type.dtype == DType::f16; });
  }

  static std::vector<TensorView> views_of_all(std::vector<Tensor>& tensors) {
    std::vector<TensorView> views;
    for (Tensor& tensor : tensors) views.push_back(tensor.view());
    return views;
  }

  std::vector<std::vector<std::byte>> expected(const Sample& sample) const {
    std::vector<Tensor> operands, results = results_of(sample, false);
    for (Tensor& operand : make_operands(in_half(sample), false)) {
      operands.push_back(widened(std::move(operand)));
    }
    const std::vector<TensorView> inputs = views_of(sample, operands);
    const std::vector<TensorView> outputs = views_of_all(results);
    const Attrs attrs = completed(row(), sample.attrs);
    ThreadPool pool(1);
    run_reference(row(), {inputs, outputs, attrs, pool, rng});
    std::vector<std::vector<std::byte>> bits;
    for (Tensor& result : results) bits.push_back(rounded_bits(std::move(result)));
    return bits;
  }

  using Run = void (*)(const OpDef&, const KernelCall&);

  std::vector<std::vector<std::byte>> run(const Sample& sample, bool odd,
                                          Run kernel = run_widened) const {
    std::vector<Tensor> operands = make_operands(in_half(sample), odd);
    std::vector<Tensor> results = results_of(sample, true);
    const std::vector<TensorView> inputs = views_of(sample, operands);
    const std::vector<TensorView> outputs = views_of_all(results);
    const Attrs attrs = completed(row(), sample.attrs);
    ThreadPool pool(3);
    kernel(row(), {inputs, outputs, attrs, pool, rng});
    std::vector<std::vector<std::byte>> bits;
    for (size_t i = 0; i < results.size(); ++i) {
      EXPECT_TRUE(results[i].guards_hold()) << "result " << i << " is written outside its memory";
      bits.emplace_back(outputs[i].data, outputs[i].data + bytes(results[i].type()));
    }
    return bits;
  }
};

TEST_P(RunWidened, RoundsTheResultOfF32Once) {
  if (!row().cpu || row().kind == Kind::host) return;  // PyTorch is not here
  for (size_t i = 0; i < row().samples.size(); ++i) {
    SCOPED_TRACE(fmt::format("sample {}", i));
    const Sample& sample = row().samples[i];
    if (!has_floats(sample) || makes_halves(sample)) continue;
    const auto wanted = expected(sample);
    EXPECT_EQ(run(sample, false), wanted);
    EXPECT_EQ(run(sample, true), wanted) << "strides change bits";
  }
}

// What only moves elements has no need to widen them.
TEST_P(RunWidened, HalvesAreMovedAsTheyAre) {
  if (!row().cpu || !row().traits.moves_elements) return;
  for (size_t i = 0; i < row().samples.size(); ++i) {
    SCOPED_TRACE(fmt::format("sample {}", i));
    const Sample& sample = row().samples[i];
    if (!has_floats(sample)) continue;
    for (const bool odd : {false, true}) {
      EXPECT_EQ(run(sample, odd, run_reference), run(sample, odd)) << odd;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Table, RunWidened, testing::ValuesIn(all_ops()),
                         [](const auto& info) { return info.param->name; });

TEST(RunWidened, ReadsRepeatedElementsAndWritesOverAnOperand) {
  std::vector<Half> a = {to_half(1), to_half(2), to_half(3), to_half(4), to_half(5), to_half(6)};
  Half b = to_half(0.5F);
  const Shape shape = {2, 3};
  const Strides dense = {3, 1}, repeated = {0, 0};
  const TensorView inputs[] = {
      {reinterpret_cast<std::byte*>(a.data()), DType::f16, shape, dense, true},
      {reinterpret_cast<std::byte*>(&b), DType::f16, shape, repeated, true}};
  const Attrs attrs = completed(op("mul"), {});
  ThreadPool pool(1);
  run_widened(op("mul"), {inputs, {inputs, 1}, attrs, pool, {}});
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(to_float(a[i]), 0.5F * static_cast<float>(i + 1));
  }
}

TEST(RunWidened, AllocatesNothingAfterTheFirstCalls) {
  std::vector<Half> a(5000, to_half(-1));
  const Shape shape = {50, 100};
  const Strides transposed = {1, 50}, dense = {100, 1};
  std::vector<Half> result(a.size());
  const TensorView input{reinterpret_cast<std::byte*>(a.data()), DType::f16, shape, transposed,
                         true};
  const TensorView output{reinterpret_cast<std::byte*>(result.data()), DType::f16, shape, dense,
                          true};
  const Attrs attrs = completed(op("neg"), {});
  ThreadPool pool(1);
  int64_t fewest = std::numeric_limits<int64_t>::max();
  for (int call = 0; call < 5; ++call) {
    const AllocationsSince before;
    run_widened(op("neg"), {{&input, 1}, {&output, 1}, attrs, pool, {}});
    fewest = std::min(fewest, before.blocks());
  }
  EXPECT_EQ(fewest, 0);
  EXPECT_EQ(to_float(result[4999]), 1);
}

}  // namespace
}  // namespace tessera
