// Kernels on halves have the bits of the same kernels on the floats that the halves are.
#include "tessera/backend/cpu/kernels/x86/of_halves.h"

#include <fmt/format.h>

#include <numeric>
#include <random>

#include "tessera/backend/cpu/kernels/copy.h"
#include "tessera/backend/cpu/kernels/needs_avx2_for_test.h"
#include "tessera/backend/cpu/kernels/run_kernel_for_test.h"
#include "tessera/backend/cpu/target_for_test.h"
#include "tessera/base/cpu_level_for_test.h"
#include "tessera/base/stochastic_rounding.h"
#include "tessera/ir/text.h"
#include "tessera/ops/builder.h"
#include "tessera/ops/of_halves.h"
#include "tessera/ops/registry.h"

namespace tessera::cpu {
namespace {

using OfHalves = NeedsAvx2;
using Ints = std::vector<int64_t>;
using Bytes = std::vector<std::byte>;

constexpr RngState rng{.seed = 5, .step = 2};

struct Operand {
  Geometry geometry;  // plain; an empty shape: left out
  bool half = true;
};

Operand operand(Shape shape, bool half = true) { return {dense(shape), half}; }

// One use of a row in f32, and of the one that reads halves, in the layouts that the first asks
// for.
class HalvesTrial {
 public:
  HalvesTrial(std::string_view op_name, const std::vector<Operand>& operands, Attrs attrs = {})
      : row_(op(op_name)), attrs_(completed(row_, attrs)) {
    std::vector<std::optional<TensorType>> types;
    for (const Operand& one : operands) {
      const bool present = !one.geometry.shape.empty();
      single_.push_back({DType::f32, one.geometry, present});
      types.push_back(present ? std::optional(TensorType{DType::f32, one.geometry.shape})
                              : std::nullopt);
    }
    for (const TensorType& type : infer(row_, types, attrs_)) {
      outputs_.push_back({type.dtype, dense(type.shape)});
    }
    const auto asked =
        requested_layouts({row_, attrs_, single_, outputs_, target_for_test()}).layouts;
    for (size_t i = 0; i < asked.size(); ++i) {
      if (asked[i].plain()) continue;
      KernelOperand& one = i < single_.size() ? single_[i] : outputs_[i - single_.size()];
      one.geometry = dense(physical_shape(asked[i], one.geometry.shape));
      one.layout = asked[i];
    }
    std::mt19937 random(3);
    std::uniform_real_distribution<float> uniform(-1, 1);
    halves_ = single_;
    for (size_t i = 0; i < single_.size(); ++i) {
      const size_t count =
          single_[i].present ? static_cast<size_t>(extent(single_[i].geometry)) : 0;
      auto& floats = floats_.emplace_back(count);
      auto& mixed = mixed_.emplace_back(count * sizeof(float));
      for (size_t k = 0; k < count; ++k) {
        const Half half = to_half(uniform(random));
        floats[k] = to_float(half);
        if (operands[i].half) std::memcpy(mixed.data() + k * sizeof half, &half, sizeof half);
      }
      if (operands[i].half) {
        halves_[i].dtype = DType::f16;
      } else if (count > 0) {
        std::memcpy(mixed.data(), floats.data(), count * sizeof(float));
      }
    }
  }

  void expect_same_bits() {
    const KernelChoice wide = choose_kernel({row_, attrs_, single_, outputs_, target_for_test()});
    const KernelChoice narrow =
        choose_kernel({*row_of_halves(row_), attrs_, halves_, outputs_, target_for_test()});
    kernel = narrow.name;
    EXPECT_EQ(narrow.name, wide.name);
    const auto wanted = run(*wide.kernel, single_, outputs_, false, 1);
    EXPECT_EQ(run(*narrow.kernel, halves_, outputs_, true, 1), wanted);
    EXPECT_EQ(run(*narrow.kernel, halves_, outputs_, true, 3), wanted);
  }

  // The contraction that rounds its result by the body, which has one step, beside the two.
  void expect_rounds(const char* body) {
    Attrs attrs = attrs_;
    attrs.set("body", body_attr(parse_body(body)));
    const OpDef& mapped = op(std::string(row_.name) + "_map");
    std::vector<KernelOperand> rounded = outputs_;
    rounded[0].dtype = DType::f16;
    const KernelChoice both = choose_kernel({mapped, attrs, halves_, rounded, target_for_test()});
    const KernelChoice apart = choose_kernel({row_, attrs_, single_, outputs_, target_for_test()});
    const KernelChoice round =
        choose_kernel({op("map"), attrs, outputs_, rounded, target_for_test()});
    kernel = both.name;
    EXPECT_EQ(both.name, apart.name);
    auto made = run(*apart.kernel, single_, outputs_, false, 1);
    ThreadPool pool(1, level_for_test());
    Bytes wanted(made[0].size() / 2);
    const TensorView from{made[0].data(), DType::f32, outputs_[0].geometry.shape,
                          outputs_[0].geometry.strides};
    const TensorView to{wanted.data(), DType::f16, rounded[0].geometry.shape,
                        rounded[0].geometry.strides};
    run_kernel(
        *round.kernel,
        {.inputs = {&from, 1}, .outputs = {&to, 1}, .attrs = attrs, .pool = pool, .rng = rng});
    for (const int threads : {1, 3}) {
      EXPECT_EQ(run(*both.kernel, halves_, rounded, true, threads)[0], wanted) << threads;
    }
  }

  std::string kernel;

 private:
  std::vector<Bytes> run(const PreparedKernel& prepared, const std::vector<KernelOperand>& operands,
                         const std::vector<KernelOperand>& results, bool mixed, int threads) {
    ThreadPool pool(threads, level_for_test());
    std::vector<TensorView> inputs, outputs;
    for (size_t i = 0; i < operands.size(); ++i) {
      auto* data = mixed ? mixed_[i].data() : reinterpret_cast<std::byte*>(floats_[i].data());
      inputs.push_back({data, operands[i].dtype, operands[i].geometry.shape,
                        operands[i].geometry.strides, operands[i].present});
    }
    std::vector<Bytes> made;
    for (const KernelOperand& result : results) {
      made.emplace_back(static_cast<size_t>(bytes({result.dtype, result.geometry.shape})),
                        std::byte{0xCD});
    }
    for (size_t i = 0; i < results.size(); ++i) {
      outputs.push_back({made[i].data(), results[i].dtype, results[i].geometry.shape,
                         results[i].geometry.strides});
    }
    run_kernel_often(
        prepared,
        {.inputs = inputs, .outputs = outputs, .attrs = attrs_, .pool = pool, .rng = rng});
    return made;
  }

  const OpDef& row_;
  Attrs attrs_;
  std::vector<KernelOperand> single_, halves_, outputs_;
  std::vector<std::vector<float>> floats_;
  std::vector<Bytes> mixed_;
};

Attrs window(int64_t stride, int64_t padding) {
  return {{"stride", Ints{stride, stride}},
          {"padding", Ints{padding, padding}},
          {"dilation", Ints{1, 1}}};
}

Attrs with(Attrs attrs, std::string name, Ints values) {
  attrs.set(std::move(name), std::move(values));
  return attrs;
}

// Channels, places and weights: Winograd's kernels with shared weights and with shared images, the
// direct ones, those for few channels and those for few images.
struct Conv {
  int64_t batch, in, out, size, kernel, stride, padding;
};
constexpr Conv convs[] = {{1, 16, 16, 19, 3, 1, 1},  {2, 32, 24, 40, 3, 1, 0},
                          {2, 256, 256, 7, 3, 1, 1}, {2, 16, 32, 14, 3, 2, 1},
                          {1, 16, 8, 12, 1, 1, 0},   {2, 3, 16, 20, 5, 1, 2},
                          {8, 1, 5, 12, 3, 1, 0},    {8, 5, 12, 13, 5, 1, 0}};

int64_t places(const Conv& c) { return (c.size + 2 * c.padding - c.kernel) / c.stride + 1; }

TEST_F(OfHalves, ConvolutionsHaveTheSameBits) {
  for (const Conv& c : convs) {
    SCOPED_TRACE(fmt::format("{} images, {} to {} of {}", c.batch, c.in, c.out, c.size));
    const Shape images = {c.batch, c.in, c.size, c.size},
                weights = {c.out, c.in, c.kernel, c.kernel},
                grads = {c.batch, c.out, places(c), places(c)};
    const Attrs attrs = window(c.stride, c.padding);
    for (const bool half : {true, false}) {  // of the weights; of the bias the other way round
      HalvesTrial forward(
          "conv", {operand(images), operand(weights, half), operand({c.out}, !half)}, attrs);
      forward.expect_same_bits();
      HalvesTrial input_grad("conv_input_grad", {operand(grads), operand(weights, half)},
                             with(attrs, "input_size", {c.in, c.size, c.size}));
      input_grad.expect_same_bits();
      HalvesTrial weight_grad("conv_weight_grad", {operand(grads), operand(images, half)},
                              with(attrs, "kernel_size", {c.kernel, c.kernel}));
      weight_grad.expect_same_bits();
    }
  }
}

TEST_F(OfHalves, ConvolutionsRoundTheirResults) {
  for (const Conv& c : convs) {
    SCOPED_TRACE(fmt::format("{} images, {} to {} of {}", c.batch, c.in, c.out, c.size));
    HalvesTrial trial("conv",
                      {operand({c.batch, c.in, c.size, c.size}),
                       operand({c.out, c.in, c.kernel, c.kernel}), operand({c.out})},
                      window(c.stride, c.padding));
    trial.expect_rounds("%0 = cast(a0) {dtype = f16} : f16; out %0");
    trial.expect_rounds("%0 = stochastic_cast(a0) {key = 7} : f16; out %0");
  }
}

TEST_F(OfHalves, ProductsHaveTheSameBits) {
  struct Product {
    int64_t rows, columns, depth;
  };
  for (const auto& [rows, columns, depth] :
       {Product{1, 9, 40}, Product{16, 100, 972}, Product{64, 96, 80}, Product{100, 33, 64},
        Product{150, 70, 700}, Product{7, 1, 33}, Product{10, 100, 16}}) {
    for (const bool left : {false, true}) {
      for (const bool right : {false, true}) {
        SCOPED_TRACE(fmt::format("{}x{}x{} {}{}", rows, columns, depth, left, right));
        const Geometry a = left ? Geometry{{rows, depth}, {1, rows}, 0} : dense({rows, depth});
        const Geometry b =
            right ? Geometry{{depth, columns}, {1, depth}, 0} : dense({depth, columns});
        for (const bool both : {true, false}) {
          HalvesTrial("matmul", {{a, true}, {b, both}}).expect_same_bits();
          HalvesTrial("matmul", {{a, both}, {b, true}}).expect_same_bits();
        }
      }
    }
  }
  HalvesTrial batch("matmul", {operand({3, 20, 30}), operand({3, 30, 40})});
  batch.expect_same_bits();
  EXPECT_EQ(batch.kernel, "packed");
}

TEST_F(OfHalves, MomentsHaveTheSameBits) {
  for (const Shape& shape : {Shape{2, 16, 9, 11}, Shape{3, 5, 7, 9}, Shape{40, 13}}) {
    Ints dims;
    for (int64_t i = 0; i < static_cast<int64_t>(shape.size()); ++i) {
      if (i != 1) dims.push_back(i);
    }
    HalvesTrial trial("moments", {operand(shape)}, {{"dim", dims}});
    trial.expect_same_bits();
    EXPECT_EQ(trial.kernel, "avx2_moments");
  }
}

// --- updates ------------------------------------------------------------------------------------

Bytes to_halves(std::span<const float> floats) {
  Bytes halves(floats.size() * sizeof(Half));
  for (size_t i = 0; i < floats.size(); ++i) {
    const Half half = to_half(floats[i]);
    std::memcpy(halves.data() + i * sizeof half, &half, sizeof half);
  }
  return halves;
}

// Row-major numbers of the elements, in the order of the layout.
std::vector<int32_t> numbers_in(const Layout& layout, const Shape& shape) {
  std::vector<int32_t> numbers(static_cast<size_t>(numel(shape))), laid(numbers.size());
  std::iota(numbers.begin(), numbers.end(), 0);
  const Geometry geometry = physical_geometry(layout, dense(shape));
  ThreadPool pool(1, level_for_test());
  copy_dense(
      {reinterpret_cast<std::byte*>(numbers.data()), DType::i32, geometry.shape, geometry.strides},
      reinterpret_cast<std::byte*>(laid.data()), pool);
  return laid;
}

// The update of halves, beside that of floats whose results are rounded.
void expect_update(const char* name, size_t memories, size_t number_count, const Layout& layout,
                   const Shape& shape, bool by_chance) {
  SCOPED_TRACE(fmt::format("{} {} {}", name, to_string(layout), by_chance));
  std::mt19937 random(3);
  std::uniform_real_distribution<float> uniform(0.1F, 1);
  const auto count = static_cast<size_t>(numel(shape));
  const Geometry whole = dense(physical_shape(layout, shape));
  std::vector<std::vector<float>> floats;
  std::vector<Bytes> halves;
  std::vector<KernelOperand> wide, narrow, wide_results, narrow_results;
  const auto add = [&](size_t elements, const Geometry& geometry, bool half) {
    auto& values = floats.emplace_back();
    for (size_t i = 0; i < elements; ++i) values.push_back(to_float(to_half(uniform(random))));
    halves.push_back(half ? to_halves(values) : Bytes(elements * sizeof(float)));
    if (!half) std::memcpy(halves.back().data(), values.data(), elements * sizeof(float));
    const bool element = elements == count;
    wide.push_back({DType::f32, geometry, true, element ? layout : Layout{}});
    narrow.push_back(wide.back());
    if (half) narrow.back().dtype = DType::f16;
  };
  add(count, whole, true);           // param
  add(count, whole, memories == 1);  // grad
  add(1, dense({}), false);          // step
  for (size_t i = 0; i < memories; ++i) add(count, whole, true);
  for (size_t i = 0; i < number_count; ++i) add(2, dense({2}), false);
  if (by_chance) {  // and a gradient that is scaled
    narrow.push_back({DType::f32, dense({})});
    const float factor = 0.5F;
    for (float& value : floats[1]) value *= 2;
    halves.push_back(memories == 1 ? to_halves(floats[1]) : Bytes(count * sizeof(float)));
    if (memories != 1) std::memcpy(halves.back().data(), floats[1].data(), count * sizeof(float));
    std::swap(halves[1], halves.back());
    for (float& value : floats[1]) value /= 2;
    halves.back().resize(sizeof factor);
    std::memcpy(halves.back().data(), &factor, sizeof factor);
  }
  Attrs attrs = completed(op(name), {}), with_keys = attrs;
  Ints keys;
  for (size_t i = 0; i < memories + 2; ++i) {
    const bool element = i != 1;
    wide_results.push_back(
        {DType::f32, element ? whole : dense({}), true, element ? layout : Layout{}});
    narrow_results.push_back(wide_results.back());
    if (element) narrow_results.back().dtype = DType::f16;
    if (element && by_chance) keys.push_back(static_cast<int64_t>(i) + 11);
  }
  with_keys.set("keys", keys);
  const OpDef& row = *row_of_halves(op(name));
  const KernelChoice single =
      choose_kernel({op(name), attrs, wide, wide_results, target_for_test()});
  const KernelChoice both =
      choose_kernel({row, with_keys, narrow, narrow_results, target_for_test()});
  ASSERT_EQ(single.name, "avx2");
  ASSERT_EQ(both.name, "avx2");

  const auto run = [&](const KernelChoice& choice, const std::vector<KernelOperand>& operands,
                       const std::vector<KernelOperand>& results, bool mixed, int threads) {
    ThreadPool pool(threads, level_for_test());
    std::vector<TensorView> inputs, outputs;
    for (size_t i = 0; i < operands.size(); ++i) {
      auto* data = mixed ? halves[i].data() : reinterpret_cast<std::byte*>(floats[i].data());
      inputs.push_back({data, operands[i].dtype, operands[i].geometry.shape,
                        operands[i].geometry.strides, true});
    }
    std::vector<Bytes> made;
    for (const KernelOperand& result : results) {
      made.emplace_back(static_cast<size_t>(bytes({result.dtype, result.geometry.shape})));
    }
    for (size_t i = 0; i < results.size(); ++i) {
      outputs.push_back({made[i].data(), results[i].dtype, results[i].geometry.shape,
                         results[i].geometry.strides});
    }
    run_kernel_often(*choice.kernel, {.inputs = inputs,
                                      .outputs = outputs,
                                      .attrs = mixed ? with_keys : attrs,
                                      .pool = pool,
                                      .rng = rng});
    return made;
  };
  auto wanted = run(single, wide, wide_results, false, 1);
  const std::vector<int32_t> numbers = numbers_in(layout, shape);
  size_t rounded = 0;
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (i == 1) continue;
    const auto* values = reinterpret_cast<const float*>(wanted[i].data());
    Bytes result(count * sizeof(Half));
    const auto stream =
        by_chance ? rounding_stream(rng, static_cast<uint64_t>(keys[rounded++])) : RoundingStream{};
    for (size_t k = 0; k < count; ++k) {
      const auto word = rounding_word(stream, static_cast<uint32_t>(numbers[k]));
      const Half half = by_chance ? to_half(values[k], word) : to_half(values[k]);
      std::memcpy(result.data() + k * sizeof half, &half, sizeof half);
    }
    wanted[i] = std::move(result);
  }
  EXPECT_EQ(run(both, narrow, narrow_results, true, 1), wanted);
  EXPECT_EQ(run(both, narrow, narrow_results, true, 3), wanted);
}

TEST_F(OfHalves, UpdatesRoundOnceAndInAnyLayout) {
  for (const bool by_chance : {false, true}) {
    for (const Layout& layout : {plain_layout, weights_layout}) {
      const Shape shape = layout.plain() ? Shape{7, 5, 1003} : Shape{64, 80, 3, 3};
      expect_update("sgd", 1, 4, layout, shape, by_chance);
      expect_update("adam", 2, 5, layout, shape, by_chance);
      expect_update("rmsprop", 2, 5, layout, shape, by_chance);
    }
  }
}

}  // namespace
}  // namespace tessera::cpu
