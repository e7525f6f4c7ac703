// Fused bodies against their steps, one after the other over whole tensors: the same bits.
#include "tessera/ops/fused_interpreter.h"

#include <gtest/gtest.h>

#include <random>

#include "tessera/ir/text.h"
#include "tessera/ops/run_op_for_test.h"
#include "tessera/ops/sample_tensors_for_test.h"

namespace tessera {
namespace {

HostTensor random_tensor(const TensorType& type) {
  static std::mt19937 random(3);
  HostTensor tensor(type);
  const int64_t count = numel(type.shape);
  for (int64_t i = 0; i < count; ++i) {
    const auto put = [&](auto x) { std::memcpy(&tensor.memory[i * sizeof x], &x, sizeof x); };
    const auto drawn = static_cast<int32_t>(random() % 4001) - 2000;
    if (type.dtype == DType::f32) put(static_cast<float>(drawn) / 1000);
    if (type.dtype == DType::i32) put(drawn / 400);
    if (type.dtype == DType::boolean) put(static_cast<uint8_t>(drawn > 0));
  }
  return tensor;
}

HostTensor random_tensor(const SampleOperand& given) {
  HostTensor tensor(given.type);
  const size_t size = size_of(given.type.dtype);
  for (size_t i = 0; i < tensor.memory.size() / size; ++i) {
    const double uniform = uniform_from_word(random_words({}, 5, i)[0]);
    store(&tensor.memory[i * size], given.type.dtype,
          given.low + uniform * (given.high - given.low));
  }
  return tensor;
}

HostTensor number(const BodyValue& value) {
  return OpRun("fill", {},
               {{"shape", Shape{}}, {"value", value.number}, {"dtype", value.dtype}})[0];
}

std::vector<std::vector<std::byte>> one_by_one(const FusedBody& body,
                                               const std::vector<HostTensor>& operands) {
  std::vector<HostTensor> steps;
  const auto value_of = [&](const BodyValue& value) {
    if (value.from == BodyValue::From::number) return number(value);
    return value.from == BodyValue::From::step ? steps[value.index] : operands[value.index];
  };
  for (const BodyStep& step : body.steps) {
    std::vector<HostTensor> arguments;
    for (const BodyValue& value : step.arguments) arguments.push_back(value_of(value));
    steps.push_back(OpRun(step.op, arguments, step.attrs)[0]);
  }
  std::vector<std::vector<std::byte>> results;
  for (const BodyResult& result : body.results) {
    HostTensor value = value_of(result.value);
    if (result.summed) value = OpRun("sum", {value}, sum_attributes(result))[0];
    results.push_back(value.memory);
  }
  return results;
}

void expect_same_bits(const std::string& text, const std::vector<TensorType>& types) {
  SCOPED_TRACE(text + " on " + to_string(types[0]));
  const FusedBody body = completed(parse_body(text));
  std::vector<HostTensor> operands;
  for (const TensorType& type : types) operands.push_back(random_tensor(type));
  const bool sums = text.find("sum") != std::string::npos;
  const OpRun fused(sums ? "map_reduce" : "map", operands, {{"body", body_attr(body)}});
  const auto wanted = one_by_one(body, operands);
  ASSERT_EQ(fused.size(), wanted.size());
  for (size_t i = 0; i < wanted.size(); ++i) EXPECT_EQ(fused[i].memory, wanted[i]) << i;
}

TEST(FusedInterpreter, HasTheBitsOfItsSteps) {
  // Sizes around those of blocks, and dimensions that do not merge.
  for (const Shape& shape : {Shape{},
                             {1},
                             {7},
                             {1023},
                             {1024},
                             {1025},
                             {2049},
                             {3, 1025},
                             {40, 33},
                             {5, 1, 7, 300},
                             {2, 3, 4, 5, 6, 7}}) {
    const TensorType reals{DType::f32, shape}, truths{DType::boolean, shape};
    const TensorType one{DType::f32, {}}, last{DType::f32, Shape(shape.empty() ? 0 : 1, 1)};
    expect_same_bits("%0 = mul(a0, a1); %1 = exp(%0); %2 = sub(%1, a2) {alpha = 0.5}; out %2, %0",
                     {reals, reals, one});
    expect_same_bits(
        "%0 = gt(a0, 0.25) : bool; %1 = logical_and(%0, a1) : bool; %2 = where(%1, a0, a2); "
        "%3 = cast(%2) {dtype = i32} : i32; %4 = add(%3, i32(7.0)) : i32; out %4, %1, %2",
        {reals, truths, last});
    // A single number as exponent has another form than one of many.
    expect_same_bits("%0 = pow(a0, 2.0); %1 = pow(a0, a1); %2 = pow(a0, a2); out %0, %1, %2",
                     {reals, one, reals});
    if (shape.empty()) continue;
    expect_same_bits("%0 = sin(a0); out sum %0 over [], %0, sum a0 over [0] keepdim", {reals});
  }
}

// A row that looks at more than the elements at hand would show here: blocks are smaller than some
// samples.
TEST(FusedInterpreter, EveryRowIsAStepWithItsOwnBits) {
  size_t tried = 0;
  for (const OpDef* row : all_ops()) {
    if (!can_be_step(*row) || row->name == "map") continue;
    for (const Sample& sample : row->samples) {
      std::vector<HostTensor> operands;
      BodyStep step{row->name, {}, completed(*row, sample.attrs)};
      Shape shape;
      for (size_t i = 0; i < sample.operands.size(); ++i) {
        const SampleOperand& given = sample.operands[i];
        operands.push_back(random_tensor(given));
        step.arguments.push_back({BodyValue::From::operand, i});
        shape = broadcast(shape, given.type.shape);
      }
      const OpRun alone(row->name, operands, sample.attrs);
      step.dtype = alone[0].type.dtype;
      const FusedBody body{{step}, {{{BodyValue::From::step, 0}}}};
      const OpRun fused("map", operands, {{"body", body_attr(body)}});
      EXPECT_EQ(fused[0].memory, alone[0].memory) << print_body(body) << " on " << to_string(shape);
      ++tried;
    }
  }
  EXPECT_GT(tried, 400U);
}

TEST(FusedInterpreter, OperandsAreRepeated) {
  const TensorType x{DType::f32, {4, 6, 5, 70}};
  for (const Shape& other : {Shape{6, 1, 1}, {70}, {4, 1, 5, 1}, {4, 1, 1, 1}, {5, 1}}) {
    expect_same_bits(
        "%0 = mul(a0, a1); %1 = pow(%0, a1); %2 = add(%1, a0); out %2, sum %2 over [1]",
        {x, {DType::f32, other}});
  }
}

// More values are alive than a body usually has, and slots of dead ones are used again.
TEST(FusedInterpreter, ValuesKeepTheirPlaces) {
  std::string text = "%0 = neg(a0); ";
  for (int i = 1; i < 40; ++i) text += fmt::format("%{} = add(%{}, %{}); ", i, i - 1, i / 2);
  expect_same_bits(text + "%40 = mul(%20, %39); out %40, %7, %3", {{DType::f32, {3000}}});
}

}  // namespace
}  // namespace tessera
