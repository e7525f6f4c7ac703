#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "tessera/backend/cpu/kernels/run_kernel_for_test.h"
#include "tessera/backend/cpu/kernels/table.h"
#include "tessera/backend/cpu/kernels/x86/fused/program.h"
#include "tessera/backend/cpu/memory.h"
#include "tessera/backend/cpu/target_for_test.h"
#include "tessera/base/cpu_level_for_test.h"
#include "tessera/ir/text.h"
#include "tessera/ops/builder.h"
#include "tessera/ops/fused_body.h"
#include "tessera/ops/registry.h"

namespace tessera::cpu {
namespace {

using Bytes = std::vector<std::byte>;

struct Operand {
  Shape shape;
  DType dtype = DType::f32;
  Strides strides = {};  // none: dense
  double low = -2, high = 2;
};

// Sizes, strides and memory of one tensor.
struct Tensor {
  DType dtype = DType::f32;
  Geometry geometry;
  Layout layout = {};
  Bytes memory = {};

  TensorView view() { return {memory.data(), dtype, geometry.shape, geometry.strides, true}; }
  KernelOperand operand() const { return {dtype, geometry, true, layout}; }
};

// Where the elements of a shape lie, in its row-major order.
std::vector<int64_t> places(const Geometry& geometry) {
  std::vector<int64_t> out;
  for (int64_t i = 0; i < numel(geometry.shape); ++i) {
    int64_t left = i, offset = 0;
    for (size_t d = geometry.shape.size(); d-- > 0;) {
      offset += left % geometry.shape[d] * geometry.strides[d];
      left /= geometry.shape[d];
    }
    out.push_back(offset);
  }
  return out;
}

Tensor dense_tensor(const TensorType& type) {
  return {type.dtype, dense(type.shape), {}, Bytes(static_cast<size_t>(bytes(type)))};
}

// The same elements in another layout, or back: `in` and `out` are geometries of one shape.
void copy_elements(const Tensor& from, const Geometry& in, Tensor& to, const Geometry& out) {
  const auto sources = places(in), targets = places(out);
  const size_t size = size_of(from.dtype);
  for (size_t i = 0; i < sources.size(); ++i) {
    std::memcpy(&to.memory[static_cast<size_t>(targets[i]) * size],
                &from.memory[static_cast<size_t>(sources[i]) * size], size);
  }
}

Tensor in_layout(const Tensor& plain, const Layout& layout) {
  Tensor tensor = plain;
  tensor.layout = layout;
  const Geometry seen = physical_geometry(layout, plain.geometry);
  tensor.geometry = dense(seen.shape);
  tensor.memory.assign(static_cast<size_t>(numel(seen.shape)) * size_of(plain.dtype), {});
  copy_elements(plain, seen, tensor, tensor.geometry);
  return tensor;
}

Tensor from_layout(const Tensor& tensor, const Shape& shape) {
  Tensor plain = dense_tensor({tensor.dtype, shape});
  copy_elements(tensor, tensor.geometry, plain, physical_geometry(tensor.layout, dense(shape)));
  return plain;
}

constexpr RngState rng{.seed = 17, .step = 5};

constexpr float odd_values[] = {0.0F,
                                -0.0F,
                                std::numeric_limits<float>::infinity(),
                                -std::numeric_limits<float>::infinity(),
                                std::numeric_limits<float>::quiet_NaN(),
                                1e-40F,
                                -1e-42F,
                                3e38F,
                                1.0F,
                                -1.0F};

struct Trial {
  std::string body;
  std::vector<Operand> operands;
  Layout layout = {};
  bool odd = false;

  bool sums() const { return body.find("sum ") != std::string::npos; }
  const OpDef& row() const { return op(sums() ? "map_reduce" : "map"); }
  Attrs attrs() const { return {{"body", body_attr(completed(parse_body(body)))}}; }

  std::vector<Tensor> inputs() const {
    std::mt19937 random(11);
    std::vector<Tensor> tensors;
    for (const Operand& operand : operands) {
      std::uniform_real_distribution<double> uniform(operand.low, operand.high);
      Geometry geometry = dense(operand.shape);
      if (!operand.strides.empty()) geometry.strides = operand.strides;
      Tensor tensor{operand.dtype, geometry, {}, {}};
      tensor.memory.resize(static_cast<size_t>(extent(geometry)) * size_of(operand.dtype));
      for (size_t i = 0; i < tensor.memory.size(); i += size_of(operand.dtype)) {
        auto value = static_cast<float>(uniform(random));
        if (odd && random() % 4 == 0) value = odd_values[random() % std::size(odd_values)];
        if (operand.dtype == DType::f32) {
          std::memcpy(&tensor.memory[i], &value, sizeof value);
        } else if (operand.dtype == DType::f16) {
          const Half half = to_half(value);
          std::memcpy(&tensor.memory[i], &half, sizeof half);
        } else if (operand.dtype == DType::i32) {
          const auto integer = static_cast<int32_t>(uniform(random));
          std::memcpy(&tensor.memory[i], &integer, sizeof integer);
        } else {
          tensor.memory[i] = static_cast<std::byte>(value > 0);
        }
      }
      tensors.push_back(std::move(tensor));
    }
    return tensors;
  }

  std::vector<TensorType> result_types() const {
    std::vector<std::optional<TensorType>> types;
    for (const Operand& operand : operands) {
      types.emplace_back(TensorType{operand.dtype, operand.shape});
    }
    auto out = infer(row(), types, attrs());
    for (TensorType& type : out) type.dtype = narrowed(type.dtype);
    return out;
  }

  static void run(const PreparedKernel& kernel, std::vector<Tensor>& inputs,
                  std::vector<Tensor>& outputs, const Attrs& attrs, int threads,
                  void (*runs)(const PreparedKernel&, const KernelCall&) = run_kernel) {
    ThreadPool pool(threads, level_for_test());
    std::vector<TensorView> in, out;
    for (Tensor& tensor : inputs) in.push_back(tensor.view());
    for (Tensor& tensor : outputs) out.push_back(tensor.view());
    runs(kernel, {.inputs = in, .outputs = out, .attrs = attrs, .pool = pool, .rng = rng});
  }

  std::vector<Tensor> expected() const {
    auto in = inputs();
    std::vector<Tensor> out;
    for (const TensorType& type : result_types()) out.push_back(dense_tensor(type));
    run(*reference_kernel(row()).kernel, in, out, attrs(), 1);
    return out;
  }

  // The name of the kernel that was chosen; results in plain order.
  std::string generated(std::vector<Tensor>& results, int threads) const {
    const auto types = result_types();
    Shape shape;
    for (const Operand& operand : operands) shape = broadcast(shape, operand.shape);
    auto in = inputs();
    std::vector<Tensor> out;
    for (Tensor& tensor : in) {
      if (!layout.plain() && tensor.geometry == dense(shape)) tensor = in_layout(tensor, layout);
    }
    for (const TensorType& type : types) {
      Tensor tensor = dense_tensor(type);
      if (!layout.plain() && type.shape == shape) tensor = in_layout(tensor, layout);
      std::fill(tensor.memory.begin(), tensor.memory.end(), std::byte{0xcd});
      out.push_back(std::move(tensor));
    }
    std::vector<KernelOperand> uses_in, uses_out;
    for (const Tensor& tensor : in) uses_in.push_back(tensor.operand());
    for (const Tensor& tensor : out) uses_out.push_back(tensor.operand());
    const Attrs own = attrs();
    const KernelChoice choice = choose_kernel({row(), own, uses_in, uses_out, target_for_test()});
    if (choice.name != "generated") return choice.name;
    run(*choice.kernel, in, out, own, threads, run_kernel_often);
    results.clear();
    for (size_t i = 0; i < out.size(); ++i) {
      results.push_back(out[i].layout.plain() ? out[i] : from_layout(out[i], types[i].shape));
    }
    return choice.name;
  }
};

// Of halves; one NaN is as good as another.
double different_bits(const Tensor& wanted, const Tensor& got) {
  for (size_t i = 0; i < wanted.memory.size(); i += sizeof(Half)) {
    Half a, b;
    std::memcpy(&a, &wanted.memory[i], sizeof a);
    std::memcpy(&b, &got.memory[i], sizeof b);
    const bool nan = std::isnan(to_float(a)) && std::isnan(to_float(b));
    if (a != b && !nan) return 1e9;
  }
  return 0;
}

// The largest difference, relative to the larger of the value and `floor`; huge where one of two is
// not a number or a sign of zero differs in exact comparisons.
double difference(const Tensor& wanted, const Tensor& got, double floor) {
  if (wanted.dtype == DType::f16) return different_bits(wanted, got);
  if (wanted.dtype != DType::f32) return wanted.memory == got.memory ? 0 : 1e9;
  double worst = 0;
  for (size_t i = 0; i < wanted.memory.size(); i += sizeof(float)) {
    float a = 0, b = 0;
    std::memcpy(&a, &wanted.memory[i], sizeof a);
    std::memcpy(&b, &got.memory[i], sizeof b);
    if (std::isnan(a) && std::isnan(b)) continue;
    if (floor == 0) {
      if (std::memcmp(&a, &b, sizeof a) != 0) return 1e9;
      continue;
    }
    if (a == b) continue;
    if (std::isnan(a) || std::isnan(b) || std::isinf(a) || std::isinf(b)) return 1e8;
    worst = std::max(worst, std::abs(double{a} - double{b}) / std::max(floor, std::abs(double{a})));
  }
  return worst;
}

// Tolerance 0: the same bits.
void expect_like_reference(const Trial& trial, double tolerance, double floor = 1e-30) {
  if (!has_avx2()) GTEST_SKIP();
  SCOPED_TRACE(trial.body + " on " + tessera::to_string(trial.operands[0].shape) + " " +
               to_string(trial.layout));
  std::vector<Tensor> one, more;
  ASSERT_EQ(trial.generated(one, 1), "generated");
  const auto wanted = trial.expected();
  for (size_t i = 0; i < wanted.size(); ++i) {
    EXPECT_LE(difference(wanted[i], one[i], tolerance == 0 ? 0 : floor), tolerance) << i;
  }
  for (const int threads : {2, 3}) {
    trial.generated(more, threads);
    for (size_t i = 0; i < one.size(); ++i) EXPECT_EQ(one[i].memory, more[i].memory) << i;
  }
}

TEST(Fused, ArithmeticHasTheSameBits) {
  for (const char* body :
       {"%0 = mul(a0, a1); %1 = add(%0, 0.5); %2 = add(%1, a0); %3 = relu(%2); out %3",
        "%0 = maximum(a0, a1); %1 = minimum(%0, 0.0); %2 = neg(%1); out %2, %0",
        "%0 = div(a0, a1); %1 = sqrt(a0); %2 = rsqrt(a1); %3 = sub(%1, %2); out %3, %0",
        "%0 = gt(a0, a1) : bool; %1 = where(%0, a0, a1); %2 = le(%1, 0.25) : bool; out %1, %2, %0",
        "%0 = threshold_backward(a0, a1); %1 = clamp(%0) {min = -1.0, max = 0.0}; out %1"}) {
    for (const Shape& shape : {Shape{}, {1}, {7}, {8}, {9}, {33}, {2, 3, 5, 7}, {17, 1030}}) {
      expect_like_reference({body, {{shape}, {shape}}, {}, true}, 0);
    }
  }
}

TEST(Fused, OperandsAreRepeatedAndStrided) {
  const char* body = "%0 = mul(a0, a1); %1 = add(%0, a2); %2 = relu(%1); out %2";
  expect_like_reference({body, {{{4, 6, 5, 7}}, {{6, 1, 1}}, {{6, 1, 1}}}}, 0);
  expect_like_reference({body, {{{4, 6, 5, 7}}, {{7}}, {{4, 1, 5, 1}}}}, 0);
  expect_like_reference({body, {{{9, 31}}, {{9, 31}, DType::f32, {1, 9}}, {{}}}}, 0);
  expect_like_reference({body, {{{9, 31}}, {{9, 31}, DType::f32, {62, 2}}, {{1, 31}}}}, 0);
  expect_like_reference({body, {{{12, 8}}, {{12, 8}, DType::f32, {1, 12}}, {{12, 1}}}}, 0);
  expect_like_reference({body, {{{12, 8}}, {{8}}, {{12, 8}, DType::f32, {0, 1}}}}, 0);
}

TEST(Fused, TruthValuesAreBytes) {
  const char* body =
      "%0 = logical_and(a0, a1) : bool; %1 = where(%0, a2, 0.5); %2 = cast(a1) {dtype = f32}; "
      "%3 = mul(%1, %2); %4 = logical_not(%0) : bool; out %3, %4";
  for (const Shape& shape : {Shape{5}, {8}, {43}, {6, 5, 7}}) {
    expect_like_reference({body, {{shape, DType::boolean}, {shape, DType::boolean}, {shape}}}, 0);
  }
  expect_like_reference({body, {{{8}, DType::boolean}, {{5, 8}, DType::boolean}, {{5, 8}}}}, 0);
}

TEST(Fused, IntegersAreComparedAndCast) {
  const Operand few{{}, DType::i32, {}, -3, 3}, many{{}, DType::i32, {}, -2e9, 2e9};
  for (const char* body :
       {"%0 = eq(a0, a1) : bool; %1 = ne(a0, a1) : bool; %2 = lt(a0, a1) : bool; %3 = cast(%0) "
        "{dtype = f32}; "
        "%4 = mul(%3, a2); out %4, %1, %2, sum %3 over [0]",
        "%0 = le(a0, a1) : bool; %1 = gt(a0, a1) : bool; %2 = ge(a0, a1) : bool; %3 = where(%1, "
        "a0, a1) : i32; "
        "%4 = cast(%3) {dtype = f32}; out %0, %1, %2, %3, %4",
        "%0 = cast(a2) {dtype = i32} : i32; %1 = eq(%0, a0) : bool; %2 = cast(%1) {dtype = i32} : "
        "i32; "
        "%3 = add(%2, a1) : i32; %4 = cast(a0) {dtype = bool} : bool; %5 = logical_not(a1) : bool; "
        "out %3, %4, %5, %0",
        "%0 = sub(a0, i32(3.0)) : i32; %1 = mul(%0, a1) : i32; %2 = eq(a1, i32(1.0)) : bool; %3 = "
        "where(bool(1.0), %1, a0) : i32; out %1, %2, %3"}) {
    for (const Shape& shape : {Shape{1}, {7}, {8}, {43}, {5, 9}, {3, 700}}) {
      for (Operand integers : {few, many}) {
        integers.shape = shape;
        const Operand numbers{shape, DType::f32, {}, -4, 4};
        expect_like_reference({body, {integers, integers, numbers}, {}, true}, 0);
      }
    }
  }
  expect_like_reference({"%0 = masked_fill(a0, a1, a2) : i32; out %0",
                         {{{9, 31}, DType::i32, {}, 0, 99}, {{9, 31}, DType::boolean}, few}},
                        0);
  // A class for all of them, labels that lie apart, images in their layout.
  const char* body = "%0 = eq(a0, a1) : bool; %1 = where(%0, a2, 0.5); out %1, %0";
  expect_like_reference({body, {{{9, 31}, DType::i32, {62, 2}, 0, 3}, few, {{9, 31}}}}, 0);
  expect_like_reference(
      {body, {{{8, 16, 5, 7}, DType::i32, {}, 0, 3}, few, {{8, 16, 5, 7}}}, channels_layout}, 0);
}

TEST(Fused, Layouts) {
  const char* forward =
      "%0 = mul(a0, a1); %1 = add(%0, a2); %2 = add(%1, a3); %3 = relu(%2); out %3";
  const char* sums =
      "%0 = threshold_backward(a0, a3); %1 = sub(a3, a1); %2 = mul(%1, a2); %3 = mul(%0, %2); "
      "out sum %0 over [0, 2, 3], sum %3 over [0, 2, 3], %3";
  for (const Layout& layout : {plain_layout, channels_layout, batch_layout}) {
    for (const Shape& shape : {Shape{8, 16, 5, 7}, {16, 8, 1, 1}, {8, 24, 40, 9}}) {
      const Shape channels = {shape[1], 1, 1};
      const std::vector<Operand> operands = {{shape}, {channels}, {channels}, {shape}};
      expect_like_reference({forward, operands, layout}, 0);
      expect_like_reference({sums, operands, layout}, 1e-6, 1e-2);
    }
  }
  // An operand that stays plain is read through strides.
  expect_like_reference(
      {forward,
       {{{8, 16, 3, 5}}, {{16, 1, 1}}, {{8, 16, 3, 5}, DType::f32, {240, 15, 5, 1}}, {{}}},
       channels_layout},
      0);
}

TEST(Fused, Sums) {
  for (const char* dims : {"[0]", "[1]", "[2]", "[0, 1]", "[0, 2]", "[1, 2]", "[]"}) {
    for (const Shape& shape :
         {Shape{3, 5, 7}, {2, 8, 16}, {9, 4, 1111}, {90, 64, 3}, {1, 3, 30000}}) {
      const std::string body =
          fmt::format("%0 = mul(a0, a1); out sum %0 over {} keepdim, sum a0 over {}", dims, dims);
      Operand positive{shape, DType::f32, {}, 0.5, 1};
      expect_like_reference({body, {positive, positive}}, 1e-6);
    }
  }
}

TEST(Fused, ManyValuesAtOnce) {
  // More values wait than there are registers.
  std::string body;
  for (int i = 0; i < 20; ++i) body += fmt::format("%{} = add(a{}, a{}); ", i, i % 6, i % 3);
  body += "%20 = mul(%0, %1); ";
  for (int i = 2; i < 20; ++i) body += fmt::format("%{} = add(%{}, %{}); ", 19 + i, 18 + i, i);
  body += "%39 = exp(%3); %40 = mul(%38, %39); out %40, sum %38 over [0]";
  std::vector<Operand> operands;
  for (int i = 0; i < 6; ++i) operands.push_back(i == 3 ? Operand{{45}} : Operand{{13, 45}});
  expect_like_reference({body, operands}, 1e-6, 1e-3);
}

// Boxes that together are the whole, as a contraction hands them to its epilogue.
void expect_same_on_boxes(const char* body, const Layout& layout) {
  const Shape shape = {4, 16, 6, 10}, channels = {16, 1, 1};
  Trial trial{body, {{shape}, {channels}, {shape}}, layout};
  auto in = trial.inputs();
  if (!layout.plain()) in[0] = in_layout(in[0], layout), in[2] = in_layout(in[2], layout);
  Tensor out = in[0];
  std::vector<KernelOperand> uses;
  std::vector<TensorView> views;
  for (Tensor& tensor : in) {
    uses.push_back(tensor.operand());
    views.push_back(tensor.view());
  }
  const KernelOperand result = out.operand();
  const TensorView view = out.view();
  const Attrs attrs = trial.attrs();
  const auto program =
      FusedProgram::make_for_boxes(completed(parse_body(trial.body)),
                                   {trial.row(), attrs, uses, {&result, 1}, target_for_test()});
  ASSERT_TRUE(program);
  const Shape& sizes = out.geometry.shape;
  for (const std::array<int64_t, 4> step : {std::array<int64_t, 4>{1, 1, 4, 3},
                                            {2, 1, 6, 10},
                                            {4, 1, 2, 10},
                                            {3, 2, 6, 10},
                                            {4, 16, 6, 10}}) {
    std::fill(out.memory.begin(), out.memory.end(), std::byte{0xcd});
    Box box;
    for (size_t i = 0; i < sizes.size(); ++i) box.end[i] = sizes[i];
    const auto cut = [&](size_t dim, int64_t begin) {
      box.begin[dim] = begin;
      box.end[dim] = std::min(begin + step[dim], sizes[dim]);
    };
    for (int64_t n = 0; n < sizes[0]; n += step[0]) {
      for (int64_t c = 0; c < sizes[1]; c += step[1]) {
        for (int64_t y = 0; y < sizes[2]; y += step[2]) {
          for (int64_t x = 0; x < sizes[3]; x += step[3]) {
            cut(0, n), cut(1, c), cut(2, y), cut(3, x);
            program->run(box, views, {&view, 1}, rng);
          }
        }
      }
    }
    const Tensor got = layout.plain() ? out : from_layout(out, shape);
    EXPECT_EQ(got.memory, trial.expected()[0].memory);
  }
}

TEST(Fused, RunsOnBoxes) {
  if (!has_avx2()) GTEST_SKIP();
  for (const Layout& layout : {plain_layout, channels_layout}) {
    expect_same_on_boxes("%0 = mul(a0, a1); %1 = add(%0, a2); %2 = relu(%1); out %2", layout);
    expect_same_on_boxes(
        "%0 = mul(a0, a1); %1 = stochastic_cast(%0) {key = 3} : f16; %2 = cast(%1) {dtype = f32}; "
        "%3 = add(%2, a2); out %3",
        layout);
  }
}

// Every instruction against the kernel of its row, on its samples and on odd values.
TEST(Fused, InstructionsAgreeWithTheirRows) {
  if (!has_avx2()) GTEST_SKIP();
  size_t tried = 0;
  for (const OpDef* row : all_ops()) {
    if (row->kind != Kind::elementwise || row->name == "map") continue;
    for (const Sample& sample : row->samples) {
      Trial trial;
      BodyStep step{row->name, {}, completed(*row, sample.attrs)};
      std::vector<DType> types;
      const bool large = numel(sample.operands[0].type.shape) > 4000;
      for (size_t i = 0; i < sample.operands.size(); ++i) {
        const SampleOperand& operand = sample.operands[i];
        step.arguments.push_back({BodyValue::From::operand, i});
        types.push_back(operand.type.dtype);
        Operand own{operand.type.shape, operand.type.dtype, {}, operand.low * 3, operand.high * 3};
        if (own.dtype == DType::boolean) own.low = -1, own.high = 1;
        if (large) own.shape = {37, 29};
        trial.operands.push_back(own);
      }
      if (row->name == "pow") step.arguments[1] = {BodyValue::From::number, 0, 3};
      if (!find_instruction(step, types)) continue;
      std::vector<std::optional<TensorType>> scalars;
      for (const DType type : types) scalars.emplace_back(TensorType{type, {}});
      step.dtype = narrowed(infer(*row, scalars, step.attrs).at(0).dtype);
      FusedBody body{{step}, {{{BodyValue::From::step, 0}}}};
      trial.body = print_body(body);
      if (row->name == "pow") trial.operands.pop_back();
      // 1 + tanh(x) and 1 + erf(x) keep no digits far below 0, neither here nor there.
      const bool cancels = row->name.starts_with("gelu");
      for (const bool odd : {false, true}) {
        if (odd && cancels) continue;
        trial.odd = odd;
        expect_like_reference(trial, cancels ? 1e-5 : 1e-6, cancels ? 1 : 1e-6);
        ++tried;
      }
    }
  }
  EXPECT_GT(tried, 200U);
}

// --- steps without instructions -----------------------------------------------------------------

// By the kernels of their rows, so with their bits; rows shorter and longer than a tile.
TEST(Fused, StepsWithoutInstructionsAreCalled) {
  for (const char* body :
       {"%0 = mul(a0, a1); %1 = sin(%0); %2 = add(%1, a0); out %2, %0",
        "%0 = atan2(a0, a1); %1 = cos(%0); %2 = neg(%1); %3 = sinh(%2); %4 = sub(%3, %0); out %4",
        "%0 = sin(a0); %1 = gt(%0, a1) : bool; %2 = fmod(%0, 0.75); %3 = where(%1, %2, %0); "
        "out %3, %1, %2",
        "%0 = signbit(a0) : bool; %1 = logical_and(%0, %0) : bool; %2 = hypot(a0, a1); "
        "%3 = where(%1, %2, a1); out %1, %3",
        "%0 = pow(a0, a1); %1 = pow(a0, 2.5); %2 = add(%0, %1); out %2, sum %2 over []"}) {
    for (const Shape& shape :
         {Shape{}, {1}, {7}, {8}, {1023}, {1025}, {2, 3, 5, 7}, {17, 1030}, {700, 3}, {5, 9000}}) {
      const std::string text = body;
      const bool sums = text.find("sum ") != std::string::npos;
      if (sums && shape.empty()) continue;
      expect_like_reference({body, {{shape}, {shape}}, {}, !sums}, sums ? 1e-6 : 0, 1e-2);
    }
  }
}

TEST(Fused, CalledStepsReadRepeatedAndStridedOperands) {
  const char* body = "%0 = atan2(a0, a1); %1 = mul(%0, a2); %2 = pow(%1, a2); out %2, %1";
  expect_like_reference({body, {{{4, 6, 5, 7}}, {{6, 1, 1}}, {{6, 1, 1}}}}, 0);
  expect_like_reference({body, {{{4, 6, 5, 7}}, {{7}}, {{4, 1, 5, 1}}}}, 0);
  expect_like_reference({body, {{{9, 31}}, {{9, 31}, DType::f32, {1, 9}}, {{}}}}, 0);
  expect_like_reference({body, {{{300, 31}}, {{300, 31}, DType::f32, {62, 2}}, {{1, 31}}}}, 0);
  for (const Layout& layout : {channels_layout, batch_layout}) {
    const Shape shape = {8, 16, 5, 7};
    const char* image = "%0 = sin(a0); %1 = mul(%0, a1); %2 = atan2(%1, a2); out %2";
    expect_like_reference({image, {{shape}, {{16, 1, 1}}, {shape}}, layout}, 0);
  }
}

TEST(Fused, CalledStepsAreSummed) {
  for (const char* dims : {"[0]", "[1]", "[2]", "[0, 1]", "[0, 2]", "[1, 2]", "[]"}) {
    for (const Shape& shape : {Shape{3, 5, 7}, {9, 4, 1111}, {90, 64, 3}, {1, 3, 30000}}) {
      const std::string body = fmt::format(
          "%0 = mul(a0, a1); %1 = sin(%0); %2 = mul(%1, a1); out sum %1 over {}, sum %2 over {}, "
          "%1",
          dims, dims);
      Operand positive{shape, DType::f32, {}, 0.5, 1};
      expect_like_reference({body, {positive, positive}}, 1e-6);
    }
  }
}

// Every row that has none, with what stands before and after it.
TEST(Fused, RowsNeedNoInstructions) {
  if (!has_avx2()) GTEST_SKIP();
  size_t tried = 0;
  for (const OpDef* row : all_ops()) {
    if (!can_be_step(*row)) continue;
    for (const Sample& sample : row->samples) {
      Trial trial;
      BodyStep step{row->name, {}, completed(*row, sample.attrs)};
      std::vector<std::optional<TensorType>> types;
      bool vectors = true;
      for (size_t i = 0; i < sample.operands.size(); ++i) {
        const TensorType& type = sample.operands[i].type;
        step.arguments.push_back({BodyValue::From::operand, i});
        types.emplace_back(type);
        vectors = vectors && has_vectors_of(type.dtype) && numel(type.shape) > 0;
        Operand own{type.shape, type.dtype, {}, sample.operands[i].low, sample.operands[i].high};
        if (own.dtype == DType::boolean) own.low = -1, own.high = 1;
        trial.operands.push_back(own);
      }
      if (!vectors) continue;
      step.dtype = narrowed(infer(*row, types, step.attrs).at(0).dtype);
      std::vector<DType> dtypes;
      for (const auto& type : types) dtypes.push_back(type->dtype);
      if (find_instruction(step, dtypes) || !has_vectors_of(step.dtype)) continue;
      trial.body = print_body({{step}, {{{BodyValue::From::step, 0}}}});
      expect_like_reference(trial, 0);
      ++tried;
    }
  }
  EXPECT_GT(tried, 100U);
}

// --- halves --------------------------------------------------------------------------------------

Operand halves(Shape shape, Strides strides = {}) {
  return {std::move(shape), DType::f16, std::move(strides)};
}

TEST(Fused, EveryHalfIsReadAndWritten) {
  if (!has_avx2()) GTEST_SKIP();
  Trial trial{"%0 = cast(a0) {dtype = f32}; %1 = cast(%0) {dtype = f16} : f16; out %0, %1",
              {halves({65536})}};
  for (const bool summed : {false, true}) {
    if (summed) trial.body += ", sum %0 over []";
    expect_like_reference(trial, summed ? 1e-6 : 0, 1);
  }
}

TEST(Fused, HalvesAreRoundedWhereTheyAreMade) {
  for (const char* body :
       {"%0 = cast(a0) {dtype = f32}; %1 = cast(a1) {dtype = f32}; %2 = mul(%0, %1); "
        "%3 = cast(%2) {dtype = f16} : f16; %4 = cast(%3) {dtype = f32}; %5 = add(%4, %0); "
        "%6 = cast(%5) {dtype = f16} : f16; out %6, %3, %4",
        "%0 = cast(a0) {dtype = bool} : bool; %1 = cast(a1) {dtype = i32} : i32; "
        "%2 = cast(%0) {dtype = f16} : f16; %3 = cast(%1) {dtype = f16} : f16; out %2, %3, %0, %1",
        "%0 = cast(a0) {dtype = f32}; %1 = mul(%0, 300.0); %2 = cast(%1) {dtype = f16} : f16; "
        "%3 = cast(%2) {dtype = f32}; %4 = div(%3, 1e7); %5 = cast(%4) {dtype = f16} : f16; "
        "%6 = cast(a1) {dtype = f32}; %7 = gt(%6, %3) : bool; out %5, %7, %2"}) {
    for (const Shape& shape : {Shape{}, {1}, {7}, {8}, {9}, {33}, {2, 3, 5, 7}, {17, 1030}}) {
      expect_like_reference({body, {halves(shape), halves(shape)}, {}, true}, 0);
    }
  }
}

TEST(Fused, HalvesAreRepeatedStridedAndLaidOut) {
  const char* body =
      "%0 = cast(a0) {dtype = f32}; %1 = cast(a1) {dtype = f32}; %2 = mul(%0, %1); "
      "%3 = cast(%2) {dtype = f16} : f16; %4 = cast(%3) {dtype = f32}; %5 = add(%4, a2); "
      "%6 = cast(%5) {dtype = f16} : f16; out %6, %5";
  // Casts of what is repeated have the shape of all.
  const Shape images = {4, 6, 5, 7}, matrix = {9, 31}, groups = {12, 8};
  expect_like_reference({body, {halves(images), halves(images, {0, 1, 0, 0}), {{6, 1, 1}}}}, 0);
  expect_like_reference({body, {halves(images), halves(images, {0, 0, 0, 1}), {{4, 1, 5, 1}}}}, 0);
  expect_like_reference({body, {halves(images), halves(images, {0, 0, 0, 0}), {{}}}}, 0);
  expect_like_reference({body, {halves(images), halves(images, {35, 140, 7, 1}), {{}}}}, 0);
  expect_like_reference({body, {halves(matrix), halves(matrix, {1, 9}), {{}}}}, 0);
  expect_like_reference({body, {halves(matrix), halves(matrix, {62, 2}), {{1, 31}}}}, 0);
  expect_like_reference({body, {halves(matrix, {93, 3}), halves(matrix, {1, 0}), {{9, 1}}}}, 0);
  expect_like_reference({body, {halves(groups), halves(groups, {1, 12}), {{12, 1}}}}, 0);
  expect_like_reference({body, {halves(groups), halves(groups, {0, 3}), {{8}}}}, 0);
  expect_like_reference({body, {halves(groups), halves(groups, {0, 1}), {{8}}}}, 0);
  for (const Layout& layout : {channels_layout, batch_layout}) {
    for (const Shape& shape : {Shape{8, 16, 5, 7}, {16, 8, 1, 1}, {8, 24, 40, 9}}) {
      const int64_t area = shape[2] * shape[3];
      expect_like_reference(
          {body, {halves(shape), halves(shape, {0, 1, 0, 0}), {{shape[1], 1, 1}}}, layout}, 0);
      expect_like_reference({body, {halves(shape), halves(shape), {shape}}, layout}, 0);
      expect_like_reference(
          {body,
           {halves(shape), halves(shape, {shape[1] * area * 2, area * 2, shape[3] * 2, 2}), {{}}},
           layout},
          0);
    }
  }
}

TEST(Fused, HalvesAreSummed) {
  const char* body =
      "%0 = cast(a0) {dtype = f32}; %1 = mul(%0, a1); %2 = cast(%1) {dtype = f16} : f16; "
      "%3 = cast(%2) {dtype = f32}; out sum %0 over {}, sum %3 over {}, %2";
  for (const char* dims : {"[0]", "[1]", "[2]", "[0, 2]", "[]"}) {
    for (const Shape& shape : {Shape{3, 5, 7}, {2, 8, 16}, {9, 4, 1111}, {90, 64, 3}}) {
      std::string text = body;
      for (size_t at = 0; (at = text.find("{}")) != std::string::npos;) text.replace(at, 2, dims);
      expect_like_reference({text, {halves(shape), {shape, DType::f32, {}, 0.5, 1}}}, 1e-6, 1e-2);
    }
  }
}

TEST(Fused, CalledStepsBesideHalves) {
  const char* body =
      "%0 = cast(a0) {dtype = f32}; %1 = sin(%0); %2 = cast(%1) {dtype = f16} : f16; "
      "%3 = cast(%2) {dtype = f32}; %4 = atan2(%3, a1); %5 = stochastic_cast(%4) {key = 9} : f16; "
      "%6 = cast(%5) {dtype = f32}; %7 = cos(%6); %8 = stochastic_cast(%7) {key = 8} : f16; "
      "out %8, %5, %2";
  for (const Shape& shape :
       {Shape{}, {1}, {7}, {1023}, {1025}, {2, 3, 5, 7}, {17, 1030}, {700, 3}, {5, 9000}}) {
    expect_like_reference({body, {halves(shape), {shape}}, {}, true}, 0);
  }
  for (const Layout& layout : {channels_layout, batch_layout}) {
    const Shape shape = {8, 16, 5, 7};
    expect_like_reference({body, {halves(shape), {{16, 1, 1}}}, layout}, 0);
  }
}

// The chance of an element does not depend on where it lies or which thread rounds it.
TEST(Fused, RoundsByChanceAsTheRowDoes) {
  const char* body =
      "%0 = mul(a0, a1); %1 = stochastic_cast(%0) {key = 5} : f16; %2 = cast(%1) {dtype = f32}; "
      "%3 = mul(%2, 1e-6); %4 = stochastic_cast(%3) {key = 6} : f16; %5 = mul(%2, 3e4); "
      "%6 = stochastic_cast(%5) {key = 7} : f16; out %1, %4, %6, %2";
  for (const Shape& shape :
       {Shape{}, {1}, {7}, {8}, {9}, {33}, {2, 3, 5, 7}, {17, 1030}, {3, 40000}}) {
    expect_like_reference({body, {{shape}, {shape}}, {}, true}, 0);
  }
  expect_like_reference({body, {{{9, 31}, DType::f32, {1, 9}}, {{31}}}}, 0);
  expect_like_reference({body, {{{4, 6, 5, 7}}, {{4, 1, 5, 1}}}}, 0);
  for (const Layout& layout : {channels_layout, batch_layout}) {
    for (const Shape& shape : {Shape{8, 16, 5, 7}, {16, 8, 1, 1}, {8, 24, 40, 9}}) {
      expect_like_reference({body, {{shape}, {shape}}, layout}, 0);
      expect_like_reference({body, {{shape}, {{shape[1], 1, 1}}}, layout}, 0);
    }
  }
}

TEST(Fused, SumsOfWhatWasRoundedByChance) {
  const char* body =
      "%0 = mul(a0, a1); %1 = stochastic_cast(%0) {key = 5} : f16; %2 = cast(%1) {dtype = f32}; "
      "out sum %2 over [0, 2, 3], %1";
  for (const Layout& layout : {plain_layout, channels_layout, batch_layout}) {
    const Shape shape = {8, 16, 5, 7};
    const Operand positive{shape, DType::f32, {}, 0.5, 1};
    expect_like_reference({body, {positive, positive}, layout}, 1e-6);
  }
}

// Bodies that nobody thought of, of steps with the same bits in code and kernels: wherever they
// round, they round alike.
TEST(Fused, RandomBodiesOfHalvesHaveTheSameBits) {
  std::mt19937 random(23);
  const auto one_of = [&](const auto& list) { return list[random() % std::size(list)]; };
  for (int trial = 0; trial < 150; ++trial) {
    std::string body;
    std::vector<std::string> numbers = {"a1"}, made;
    size_t steps = 0;
    const auto add = [&](const std::string& step) {
      body += fmt::format("%{} = {}; ", steps, step);
      return fmt::format("%{}", steps++);
    };
    numbers.push_back(add("cast(a0) {dtype = f32}"));
    for (size_t i = 0; i < 3 + random() % 12; ++i) {
      const std::string a = one_of(numbers), b = one_of(numbers);
      const char* const two[] = {"add", "sub", "mul", "div", "maximum", "minimum"};
      const char* const one[] = {"relu", "neg", "abs", "sqrt", "floor"};
      const std::string made_now = random() % 2 ? fmt::format("{}({}, {})", one_of(two), a, b)
                                                : fmt::format("{}({})", one_of(one), a);
      numbers.push_back(add(made_now));
      if (random() % 3 == 0) continue;
      const bool chance = random() % 3 == 0;
      const std::string from = numbers.back();
      made.push_back(add(chance ? fmt::format("stochastic_cast({}) {{key = {}}} : f16", from, i)
                                : fmt::format("cast({}) {{dtype = f16}} : f16", from)));
      numbers.push_back(add(fmt::format("cast({}) {{dtype = f32}}", made.back())));
    }
    body += "out " + numbers.back();
    if (numbers.back()[0] == 'a') continue;
    for (size_t i = 0; i < made.size() && i < 4; ++i) body += ", " + made[i];
    const Shape shapes[] = {{5}, {19, 37}, {8, 16, 3, 5}, {3, 1100}, {16, 8, 2, 2}};
    const Shape shape = one_of(shapes);
    const Layout layouts[] = {plain_layout, channels_layout, batch_layout};
    const Layout layout = shape.size() == 4 ? one_of(layouts) : plain_layout;
    const Operand number{shape, DType::f32, random() % 2 ? Strides(shape.size(), 0) : Strides{}};
    expect_like_reference({body, {halves(shape), number}, layout, random() % 2 == 0}, 0);
  }
}

}  // namespace
}  // namespace tessera::cpu
