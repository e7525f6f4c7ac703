// Programs with halves in them, drawn at random, give the same bits whatever is fused, with any
// number of threads, and the referee has nothing to say of them.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <limits>
#include <random>
#include <stdexcept>

#include "tessera/backend/cpu/engine.h"
#include "tessera/backend/cpu/interpreter_for_test.h"
#include "tessera/backend/cpu/kernels/copy.h"
#include "tessera/backend/cpu/lower/lower.h"
#include "tessera/backend/cpu/lower/run_graph_for_test.h"
#include "tessera/backend/cpu/target_for_test.h"
#include "tessera/base/cpu_level_for_test.h"
#include "tessera/base/error.h"
#include "tessera/base/random_cases_for_test.h"
#include "tessera/ir/text.h"
#include "tessera/ops/builder.h"
#include "tessera/ops/partials.h"
#include "tessera/ops/registry.h"

namespace tessera::cpu {
namespace {

constexpr RngState rng{.seed = 3, .step = 4};
const Shape images = {8, 16, 6, 6};

// Operators whose code has the bits of their kernels where it is to be exact, functions otherwise;
// roundings between them, and convolutions that ask for layouts.
class RandomProgram {
 public:
  RandomProgram(uint32_t seed, bool exact) : random_(seed), exact_(exact) {
    values_.push_back(graph.add_input(InputKind::data, "x", {DType::f32, images}));
    halves_.push_back(graph.add_input(InputKind::data, "h", {DType::f16, images}));
    channels_ = graph.add_input(InputKind::data, "c", {DType::f16, {16, 1, 1}});
    filters_ = graph.add_state(StateKind::parameter, "w", {DType::f16, {16, 16, 3, 3}});
    const int forward = 4 + draw(10), backward = draw(10);
    for (int i = 0; i < forward + backward; ++i) {
      if (i == forward) build_.set_place({"", 0, "", true}, Phase::micro_batch);
      add();
    }
    for (int i = 0; i < 2 && i < static_cast<int>(halves_.size()); ++i) output(one_of(halves_));
    output(values_.back());
    output(halves_.back());
  }

  Graph graph;

 private:
  int draw(int below) { return static_cast<int>(random_() % static_cast<uint32_t>(below)); }
  template <typename T>
  T one_of(const std::vector<T>& list) {
    return list[static_cast<size_t>(draw(static_cast<int>(list.size())))];
  }
  void output(ValueId value) {
    graph.add_output("y" + std::to_string(graph.outputs().size()), value);
  }

  void add() {
    const ValueId a = one_of(values_), b = one_of(values_);
    switch (draw(14)) {
      case 0:
      case 1:
        values_.push_back(
            build_.add(one_of<const char*>({"add", "mul", "sub", "maximum"}), {a, b}));
        return round();
      case 2:
        values_.push_back(build_.add(one_of<const char*>(exact_ ? exact_ones : ones), {a}));
        return round();
      case 3:
        values_.push_back(build_.add("threshold_backward", {a, b}, {{"threshold", 0.0}}));
        return round();
      case 4:
      case 5:
        return values_.push_back(build_.cast(one_of(halves_), DType::f32));
      case 6:
        values_.push_back(build_.add("mul", {a, build_.cast(channels_, DType::f32)}));
        return round();
      case 7: {
        const std::vector<int64_t> one = {1, 1};
        Attrs attrs = {{"stride", one}, {"padding", one}, {"dilation", one}};
        if (draw(3) == 0) set_partials(attrs, DType::f16);
        if (draw(3) == 0) set_partials(attrs, DType::f16, ++key_);
        values_.push_back(build_.add("conv", {a, build_.cast(filters_, DType::f32)}, attrs));
        values_.back() = build_.add("mul", {values_.back(), build_.scalar(0.125, DType::f32)});
        return round();
      }
      case 10: {
        const std::vector<int64_t> one = {1, 1};
        values_.push_back(build_.add("conv_input_grad", {a, build_.cast(filters_, DType::f32)},
                                     {{"stride", one},
                                      {"padding", one},
                                      {"dilation", one},
                                      {"input_size", Shape{16, 6, 6}}}));
        values_.back() = build_.add("mul", {values_.back(), build_.scalar(0.125, DType::f32)});
        return round();
      }
      case 11: {
        const std::vector<int64_t> one = {1, 1};
        return output(build_.add(
            "conv_weight_grad", {a, b},
            {{"stride", one}, {"padding", one}, {"dilation", one}, {"kernel_size", Shape{3, 3}}}));
      }
      case 12: {  // their sums go by the layout
        if (exact_) return;
        const auto moments = build_.add_all("moments", {build_.cast(one_of(halves_), DType::f32)},
                                            {{"dim", Shape{0, 2, 3}}});
        values_.push_back(build_.add("sub", {a, build_.reshape(moments[0], {1, 16, 1, 1})}));
        return round();
      }
      case 13: {
        const ValueId left = build_.reshape(one_of(halves_), {128, 36});
        const Strides strides = draw(2) == 0 ? Strides{36, 1} : Strides{1, 36};
        const ValueId right = build_.view(one_of(halves_), {36, 36}, strides);
        const ValueId product =
            build_.add("matmul", {build_.cast(left, DType::f32), build_.cast(right, DType::f32)});
        values_.push_back(build_.reshape(
            build_.add("mul", {product, build_.scalar(0.0625, DType::f32)}), images));
        return round();
      }
      case 8:
        return halves_.push_back(build_.add("flip", {one_of(halves_)}, {{"dims", Shape{2}}}));
      default: {
        const ValueId flat = build_.reshape(one_of(halves_), {8, 16 * 36});
        const ValueId whole = build_.cast(flat, DType::f32);
        values_.push_back(build_.reshape(build_.add("neg", {whole}), images));
      }
    }
  }

  void round() {
    if (draw(3) == 0) return;
    const ValueId value = values_.back();
    halves_.push_back(draw(3) == 0 ? build_.add("stochastic_cast", {value}, {{"key", ++key_}})
                                   : build_.cast(value, DType::f16));
    if (draw(2) == 0) values_.push_back(build_.cast(halves_.back(), DType::f32));
  }

  const std::vector<const char*> exact_ones = {"relu", "neg", "abs"},
                                 ones = {"tanh", "sigmoid", "gelu", "silu", "relu"};

  std::mt19937 random_;
  const bool exact_;
  Builder build_{graph};
  std::vector<ValueId> values_, halves_;
  ValueId channels_, filters_;
  int64_t key_ = 0;
};

// As inputs are.
Bytes made_up_filters(const Graph& graph) {
  Graph filters;
  filters.add_input(InputKind::data, "w", graph.type(graph.states()[0].initial));
  return made_up_inputs(filters)[0];
}

std::vector<Bytes> outputs_of(const Graph& graph, const Plan& plan, int threads, bool refereed) {
  ThreadPool pool(threads, level_for_test());
  Engine engine(plan, pool);
  engine.check_calls(refereed);
  const std::vector<Bytes> inputs = made_up_inputs(graph);
  for (size_t i = 0; i < inputs.size(); ++i) engine.set_data_input(i, inputs[i].data());
  copy_from_dense(made_up_filters(graph).data(), engine.state(0), pool);
  std::vector<Bytes> outputs;
  engine.run_micro_batch(rng);
  for (size_t i = 0; i < graph.outputs().size(); ++i) {
    const TensorType& type = graph.type(graph.outputs()[i].value);
    Bytes& output = outputs.emplace_back(static_cast<size_t>(bytes(type)));
    copy_dense(engine.output(i), output.data(), pool);
  }
  return outputs;
}

// By reference kernels alone.
std::vector<Bytes> reference_outputs(const Graph& graph) {
  Interpreter interpreter(graph);
  interpreter.states[0] = made_up_filters(graph);
  return interpreter.run_micro_batch(made_up_inputs(graph), rng);
}

void expect_same(const std::vector<Bytes>& got, const std::vector<Bytes>& wanted,
                 const char* what) {
  if (got != wanted) throw std::runtime_error(fmt::format("{} changes bits", what));
}

TEST(Halves, FusionThreadsAndLayoutsChangeNoBit) {
  RandomCases().run(60, [](uint64_t seed, const RandomCases::Describe& describe) {
    const Graph graph = RandomProgram(static_cast<uint32_t>(seed), true).graph;
    verify(graph);
    const Plan plain =
        lower(graph, on_test_target({.rewrites = {.disabled = {"fuse_elementwise",
                                                               "widen_at_readers", "recompute"}}}));
    const Plan fused = lower(graph, on_test_target());
    describe(print(graph) + print(fused));
    const std::vector<Bytes> wanted = outputs_of(graph, plain, 1, false);
    expect_same(outputs_of(graph, fused, 1, false), wanted, "fusion");
    expect_same(outputs_of(graph, fused, 2, false), wanted, "a second thread");
    expect_same(outputs_of(graph, fused, 4, false), wanted, "a fourth thread");
    expect_same(outputs_of(graph, fused, 2, true), wanted, "a referee");
    const bool sums = std::any_of(graph.nodes().begin(), graph.nodes().end(), [](const Node& node) {
      return op(node).kind == Kind::contraction || op(node).kind == Kind::reduction;
    });
    if (!sums) expect_same(reference_outputs(graph), wanted, "a fast kernel");
    return CaseEnd::ran;
  });
}

// Functions have other bits in code, and what is rounded after them may become another half.
TEST(Halves, TheRefereeKnowsWhatRoundingDoes) {
  RandomCases().run(60, [](uint64_t seed, const RandomCases::Describe& describe) {
    const Graph graph = RandomProgram(static_cast<uint32_t>(seed), false).graph;
    const Plan plan = lower(graph, on_test_target());
    describe(print(graph) + print(plan));
    outputs_of(graph, plan, 2, true);
    return CaseEnd::ran;
  });
}

// What a device that raises exceptions would say of a rounding that overflows, and of what follows.
TEST(Halves, OverflowIsNoticed) {
  Graph graph;
  Builder build(graph);
  const ValueId x = graph.add_input(InputKind::data, "x", {DType::f32, {3}});
  const ValueId half = build.cast(x, DType::f16);
  const ValueId wide = build.cast(half, DType::f32);
  graph.add_output("half", half);
  graph.add_output("difference", build.cast(build.add("sub", {wide, wide}), DType::f16));
  const Plan plan = lower(graph, on_test_target({.keep_operators = true}));
  const auto said = [&](float value) -> std::string {
    ThreadPool pool(1, level_for_test());
    Engine engine(plan, pool);
    engine.check_values(true);
    const float values[] = {1, value, -2};
    engine.set_data_input(0, reinterpret_cast<const std::byte*>(values));
    try {
      engine.run_micro_batch({});
    } catch (const Error& error) {
      return error.message();
    }
    return "";
  };
  constexpr float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(said(65519), "");
  EXPECT_NE(said(65520).find("cast made an infinite value"), std::string::npos) << said(65520);
  EXPECT_NE(said(infinity).find("sub made a NaN"), std::string::npos) << said(infinity);
}

}  // namespace
}  // namespace tessera::cpu
