#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <mutex>
#include <random>

#include "tessera/backend/cpu/kernels/run_kernel_for_test.h"
#include "tessera/backend/cpu/kernels/table.h"
#include "tessera/backend/cpu/kernels/x86/winograd/choice.h"
#include "tessera/backend/cpu/kernels/x86/winograd/images.h"
#include "tessera/backend/cpu/kernels/x86/winograd/weight_grad.h"
#include "tessera/backend/cpu/memory.h"
#include "tessera/backend/cpu/target_for_test.h"
#include "tessera/base/cpu_level_for_test.h"
#include "tessera/ops/registry.h"

namespace tessera::cpu {
namespace {

using Numbers = std::vector<float>;
using Exact = std::vector<double>;

struct Case {
  WinogradShape shape;
  int tile = 4;

  Shape input() const { return {shape.batch, shape.in, shape.height, shape.width}; }
  Shape weight() const { return {shape.out, shape.in, 3, 3}; }
  Shape output() const { return {shape.batch, shape.out, shape.out_height(), shape.out_width()}; }
};

std::string print(const Case& c) {
  return "F(" + std::to_string(c.tile) + ",3) " + tessera::to_string(c.input()) + " to " +
         tessera::to_string(c.output());
}

// batch, in, out, height, width, padding
std::vector<Case> cases() {
  const std::vector<WinogradShape> shapes = {
      {1, 8, 8, 1, 1, 1, 1},     {1, 16, 16, 1, 1, 2, 2},   {3, 16, 24, 3, 3, 0, 0},
      {1, 16, 16, 4, 4, 1, 1},   {3, 24, 16, 5, 7, 1, 1},   {1, 16, 40, 9, 6, 0, 2},
      {2, 16, 16, 6, 13, 2, 1},  {3, 32, 16, 14, 14, 1, 1}, {12, 16, 32, 7, 7, 1, 1},
      {1, 16, 16, 3, 450, 1, 1}, {1, 16, 24, 30, 41, 1, 1}, {2, 256, 128, 7, 5, 1, 1},
      {3, 112, 320, 9, 6, 1, 1},
  };
  std::vector<Case> all;
  for (const WinogradShape& shape : shapes) {
    for (const int tile : {4, 2}) all.push_back({shape, tile});
  }
  return all;
}

Numbers numbers(const Shape& shape, float scale, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, scale);
  Numbers values(static_cast<size_t>(numel(shape)));
  for (float& value : values) value = normal(random);
  return values;
}

// Element k of the physical order is element order[k] of the row-major logical one.
std::vector<size_t> order(const Layout& layout, const Shape& shape) {
  const Geometry physical = physical_geometry(layout, dense(shape));
  std::vector<size_t> places(static_cast<size_t>(numel(shape)));
  for (size_t k = 0; k < places.size(); ++k) {
    auto rest = static_cast<int64_t>(k);
    int64_t place = 0;
    for (size_t d = physical.shape.size(); d-- > 0; rest /= physical.shape[d]) {
      place += rest % physical.shape[d] * physical.strides[d];
    }
    places[k] = static_cast<size_t>(place);
  }
  return places;
}

Numbers to_physical(const Layout& layout, const Shape& shape, const Numbers& values) {
  const auto places = order(layout, shape);
  Numbers result(values.size());
  for (size_t k = 0; k < values.size(); ++k) result[k] = values[places[k]];
  return result;
}

Numbers to_logical(const Layout& layout, const Shape& shape, const Numbers& values) {
  const auto places = order(layout, shape);
  Numbers result(values.size());
  for (size_t k = 0; k < values.size(); ++k) result[places[k]] = values[k];
  return result;
}

// What each of the three directions does, in double precision: for every product of the
// convolution, work(place in input, place in weight, place in output).
template <typename Work>
void each_product(const WinogradShape& s, const Work& work) {
  const int64_t height = s.out_height(), width = s.out_width();
  for (int64_t n = 0; n < s.batch; ++n) {
    for (int64_t o = 0; o < s.out; ++o) {
      for (int64_t c = 0; c < s.in; ++c) {
        for (int64_t tap = 0; tap < 9; ++tap) {
          const int64_t dy = tap / 3 - s.pad_height, dx = tap % 3 - s.pad_width;
          const int64_t top = std::max<int64_t>(0, -dy), left = std::max<int64_t>(0, -dx);
          const int64_t bottom = std::min(height, s.height - dy),
                        right = std::min(width, s.width - dx);
          for (int64_t y = top; y < bottom; ++y) {
            for (int64_t x = left; x < right; ++x) {
              work(static_cast<size_t>(((n * s.in + c) * s.height + y + dy) * s.width + x + dx),
                   static_cast<size_t>((o * s.in + c) * 9 + tap),
                   static_cast<size_t>(((n * s.out + o) * height + y) * width + x));
            }
          }
        }
      }
    }
  }
}

double error(const Numbers& got, const Exact& wanted) {
  double difference = 0, largest = 1e-30;
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (std::isnan(got[i])) return 1e9;
    difference = std::max(difference, std::abs(wanted[i] - double{got[i]}));
    largest = std::max(largest, std::abs(wanted[i]));
  }
  return difference / largest;
}

double tolerance(const Case& c) { return c.tile == 4 ? 2e-5 : 2e-6; }

TensorView view_of(const Numbers& values, int64_t& count) {
  static constexpr int64_t one = 1;
  count = static_cast<int64_t>(values.size());
  return {reinterpret_cast<std::byte*>(const_cast<float*>(values.data())),
          DType::f32,
          {&count, 1},
          {&one, 1}};
}

// With a epilogue only kernels that have one.
Numbers run(const PreparedKernel& kernel, const std::vector<const Numbers*>& inputs, size_t results,
            int threads, const Epilogue& epilogue = {}) {
  ThreadPool pool(threads, level_for_test());
  const Numbers out(results, NAN);
  std::vector<int64_t> counts(inputs.size() + 1);
  std::vector<TensorView> views;
  for (size_t i = 0; i < inputs.size(); ++i) views.push_back(view_of(*inputs[i], counts[i]));
  const TensorView output = view_of(out, counts.back());
  // Whatever lay in the workspace before must not matter.
  const Memory workspace(kernel.workspace_bytes());
  std::memset(workspace.data(), 0xff, static_cast<size_t>(workspace.bytes()));
  const Attrs attrs;
  const KernelCall call{
      .inputs = views, .outputs = {&output, 1}, .attrs = attrs, .pool = pool, .rng = {}};
  const std::span<std::byte> room(workspace.data(), static_cast<size_t>(workspace.bytes()));
  if (epilogue) {
    dynamic_cast<const WinogradImages&>(kernel).run_with_epilogue(call, room, epilogue);
  } else {
    run_kernel_often(kernel, call);
  }
  return out;
}

struct Operands {
  Numbers input, weight, grad, bias;

  explicit Operands(const Case& c)
      : input(numbers(c.input(), 1, 1)),
        weight(numbers(c.weight(), std::sqrt(2.0F / static_cast<float>(9 * c.shape.in)), 2)),
        grad(numbers(c.output(), 1, 3)),
        bias(numbers({c.shape.out}, 1, 4)) {}
};

TEST(Winograd, ConvolvesForAnyNumberOfThreads) {
  if (!has_avx2()) GTEST_SKIP();
  for (const Case& c : cases()) {
    const Operands o(c);
    Exact wanted(o.grad.size());
    const size_t plane = o.grad.size() / static_cast<size_t>(c.shape.batch * c.shape.out);
    for (size_t i = 0; i < wanted.size(); ++i) wanted[i] = o.bias[i / plane % o.bias.size()];
    each_product(c.shape, [&](size_t in, size_t w, size_t out) {
      wanted[out] += double{o.input[in]} * double{o.weight[w]};
    });
    const WinogradImages kernel(c.shape, c.tile, WinogradImages::Direction::forward, {});
    const Numbers input = to_physical(channels_layout, c.input(), o.input);
    const Numbers weight = to_physical(weights_layout, c.weight(), o.weight);
    const Numbers one = run(kernel, {&input, &weight, &o.bias}, wanted.size(), 1);
    EXPECT_LT(error(to_logical(channels_layout, c.output(), one), wanted), tolerance(c))
        << print(c);
    EXPECT_EQ(run(kernel, {&input, &weight, &o.bias}, wanted.size(), 2), one) << print(c);
    EXPECT_EQ(run(kernel, {&input, &weight, &o.bias}, wanted.size(), 3), one) << print(c);
  }
}

double root_mean_square_error(const Numbers& got, const Exact& wanted) {
  double sum = 0;
  for (size_t i = 0; i < wanted.size(); ++i) sum += std::pow(double{got[i]} - wanted[i], 2);
  return std::sqrt(sum / static_cast<double>(wanted.size()));
}

// How much larger tiles of 4 make the error of a sum that is made product by product, for images
// that come from a ReLU.
double error_beside_direct(int64_t channels) {
  const Case c{{1, channels, 16, 12, 12, 1, 1}, 4};
  Operands o(c);
  for (float& value : o.input) value = std::max(value, 0.0F);
  Exact wanted(o.grad.size());
  Numbers direct(o.grad.size());
  each_product(c.shape, [&](size_t in, size_t w, size_t out) {
    wanted[out] += double{o.input[in]} * double{o.weight[w]};
    direct[out] = std::fma(o.input[in], o.weight[w], direct[out]);
  });
  const WinogradImages kernel(c.shape, c.tile, WinogradImages::Direction::forward, {});
  const Numbers input = to_physical(channels_layout, c.input(), o.input);
  const Numbers weight = to_physical(weights_layout, c.weight(), o.weight);
  const Numbers got = run(kernel, {&input, &weight}, wanted.size(), 1);
  return root_mean_square_error(to_logical(channels_layout, c.output(), got), wanted) /
         root_mean_square_error(direct, wanted);
}

TEST(Winograd, RoundsAboutAsMuchAsADirectConvolution) {
  if (!has_avx2()) GTEST_SKIP();
  EXPECT_LT(error_beside_direct(64), 2.2);
  EXPECT_LT(error_beside_direct(256), 1.3);
  EXPECT_LT(error_beside_direct(512), 1);
}

TEST(Winograd, GradientByTheInput) {
  if (!has_avx2()) GTEST_SKIP();
  for (const Case& c : cases()) {
    const Operands o(c);
    Exact wanted(o.input.size());
    each_product(c.shape, [&](size_t in, size_t w, size_t out) {
      wanted[in] += double{o.grad[out]} * double{o.weight[w]};
    });
    const WinogradShape& s = c.shape;
    const WinogradShape back{s.batch,          s.out,          s.in, s.out_height(), s.out_width(),
                             2 - s.pad_height, 2 - s.pad_width};
    const WinogradImages kernel(back, c.tile, WinogradImages::Direction::input_grad, {});
    const Numbers grad = to_physical(channels_layout, c.output(), o.grad);
    const Numbers weight = to_physical(weights_layout, c.weight(), o.weight);
    const Numbers one = run(kernel, {&grad, &weight}, wanted.size(), 1);
    EXPECT_LT(error(to_logical(channels_layout, c.input(), one), wanted), tolerance(c)) << print(c);
    EXPECT_EQ(run(kernel, {&grad, &weight}, wanted.size(), 3), one) << print(c);
  }
}

TEST(Winograd, GradientByTheWeights) {
  if (!has_avx2()) GTEST_SKIP();
  for (const Case& c : cases()) {
    const Operands o(c);
    Exact wanted(o.weight.size());
    each_product(c.shape, [&](size_t in, size_t w, size_t out) {
      wanted[w] += double{o.grad[out]} * double{o.input[in]};
    });
    const WinogradWeightGrad kernel(c.shape, c.tile, {});
    const Numbers grad = to_physical(channels_layout, c.output(), o.grad);
    const Numbers input = to_physical(channels_layout, c.input(), o.input);
    const Numbers one = run(kernel, {&grad, &input}, wanted.size(), 1);
    EXPECT_LT(error(to_logical(weights_layout, c.weight(), one), wanted), tolerance(c)) << print(c);
    EXPECT_EQ(run(kernel, {&grad, &input}, wanted.size(), 2), one) << print(c);
    EXPECT_EQ(run(kernel, {&grad, &input}, wanted.size(), 3), one) << print(c);
  }
}

TEST(Winograd, EpilogueSeesEveryFinishedElementOnce) {
  if (!has_avx2()) GTEST_SKIP();
  for (const Case& c : cases()) {
    const Operands o(c);
    const WinogradImages kernel(c.shape, c.tile, WinogradImages::Direction::forward, {});
    const Shape shape = physical_shape(channels_layout, c.output());
    const Strides strides = contiguous_strides(shape);
    std::vector<int> seen(o.grad.size());
    std::mutex mutex;
    const auto count = [&](const Box& box) {
      const std::scoped_lock lock(mutex);
      std::array<int64_t, 5> at{};
      for (at[0] = box.begin[0]; at[0] < box.end[0]; ++at[0]) {
        for (at[1] = box.begin[1]; at[1] < box.end[1]; ++at[1]) {
          for (at[2] = box.begin[2]; at[2] < box.end[2]; ++at[2]) {
            for (at[3] = box.begin[3]; at[3] < box.end[3]; ++at[3]) {
              for (at[4] = box.begin[4]; at[4] < box.end[4]; ++at[4]) {
                int64_t place = 0;
                for (size_t d = 0; d < 5; ++d) place += at[d] * strides[d];
                ++seen[static_cast<size_t>(place)];
              }
            }
          }
        }
      }
    };
    run(kernel, {&o.input, &o.weight}, seen.size(), 2, Epilogue(count));
    EXPECT_EQ(seen, std::vector<int>(seen.size(), 1)) << print(c);
  }
}

// An entry's use of a convolution in given layouts.
class Use {
 public:
  Use(std::string_view op_name, const std::vector<Shape>& inputs, const Shape& output, Attrs attrs)
      : row_(op(op_name)), attrs_(std::move(attrs)) {
    for (const Shape& shape : inputs) inputs_.push_back({DType::f32, dense(shape)});
    outputs_.push_back({DType::f32, dense(output)});
  }

  KernelUse use() const { return {row_, attrs_, inputs_, outputs_, target}; }

  std::string wanted() const {
    for (const KernelEntry* entry : entries()) {
      if (!entry_wants(*entry, use()).empty()) return std::string(entry->name);
    }
    return "none";
  }

  // The entry that applies once it has the layouts that it asks for.
  std::string granted() {
    for (const KernelEntry* entry : entries()) {
      if (entry_applies(*entry, use())) continue;
      const auto layouts = entry_wants(*entry, use());
      if (layouts.empty()) continue;
      for (size_t i = 0; i < inputs_.size(); ++i) set(inputs_[i], layouts[i]);
      set(outputs_[0], layouts.back());
      return choose_kernel(use()).name;
    }
    return "none";
  }

  Target target = target_for_test();

 private:
  std::vector<const KernelEntry*> entries() const {
    std::vector<const KernelEntry*> found;
    for (const KernelEntry* entry : all_entries(row_.name)) {
      if (entry->name.starts_with("winograd")) found.push_back(entry);
    }
    return found;
  }

  static void set(KernelOperand& operand, const Layout& layout) {
    operand.geometry = dense(physical_shape(layout, operand.geometry.shape));
    operand.layout = layout;
  }

  const OpDef& row_;
  Attrs attrs_;
  std::vector<KernelOperand> inputs_, outputs_;
};

Attrs window(int64_t stride, int64_t padding, int64_t groups = 1) {
  return {{"stride", std::vector<int64_t>{stride, stride}},
          {"padding", std::vector<int64_t>{padding, padding}},
          {"dilation", std::vector<int64_t>{1, 1}},
          {"groups", groups}};
}

TEST(Winograd, EntriesApplyInTheLayoutsTheyWant) {
  if (!has_avx2()) GTEST_SKIP();
  const Shape images{12, 64, 56, 56}, weight{64, 64, 3, 3};
  const auto expect = [](Use use) {
    EXPECT_EQ(use.wanted(), "winograd_4");
    EXPECT_EQ(use.granted(), "winograd_4");
  };
  expect({"conv", {images, weight, {64}}, images, window(1, 1)});
  expect({"conv", {images, weight}, images, window(1, 1)});
  expect({"conv_input_grad", {images, weight}, images, window(1, 1)});
  expect({"conv_weight_grad", {images, images}, weight, window(1, 1)});

  Use precise("conv", {images, weight}, images, window(1, 1));
  precise.target.precise = true;
  EXPECT_EQ(precise.wanted(), "winograd_2");
  EXPECT_EQ(precise.granted(), "winograd_2");
}

TEST(Winograd, EntriesLeaveTheRestToOthers) {
  const auto wanted = [](const Shape& input, const Shape& weight, const Shape& output,
                         const Attrs& attrs) {
    return Use("conv", {input, weight}, output, attrs).wanted();
  };
  EXPECT_EQ(wanted({4, 64, 56, 56}, {64, 64, 3, 3}, {4, 64, 28, 28}, window(2, 1)), "none");
  EXPECT_EQ(wanted({4, 64, 56, 56}, {64, 32, 3, 3}, {4, 64, 56, 56}, window(1, 1, 2)), "none");
  EXPECT_EQ(wanted({4, 64, 56, 56}, {64, 64, 1, 1}, {4, 64, 56, 56}, window(1, 0)), "none");
  EXPECT_EQ(wanted({4, 20, 56, 56}, {64, 20, 3, 3}, {4, 64, 56, 56}, window(1, 1)), "none");
  EXPECT_EQ(wanted({4, 8, 56, 56}, {64, 8, 3, 3}, {4, 64, 56, 56}, window(1, 1)), "none");
}

TEST(Winograd, TheTileFollowsFromTheShape) {
  const auto tile = [](int64_t batch, int64_t channels, int64_t size, bool precise = false) {
    return winograd_tile({batch, channels, channels, size, size, 1, 1}, precise);
  };
  EXPECT_EQ(tile(12, 64, 56), 4);
  EXPECT_EQ(tile(12, 64, 56, true), 2);
  EXPECT_EQ(tile(12, 512, 7), 4);
  EXPECT_EQ(tile(1, 512, 1), 0);
}

}  // namespace
}  // namespace tessera::cpu
