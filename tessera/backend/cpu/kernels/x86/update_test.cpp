#include "tessera/backend/cpu/kernels/x86/update.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "tessera/backend/cpu/kernels/run_kernel_for_test.h"
#include "tessera/backend/cpu/target_for_test.h"
#include "tessera/base/cpu_level_for_test.h"
#include "tessera/ops/builder.h"
#include "tessera/ops/optimizer_parts.h"
#include "tessera/ops/registry.h"

namespace tessera::cpu {
namespace {

// One sample of a row: operands drawn as it says, results of any kernel.
class UpdateTrial {
 public:
  UpdateTrial(const OpDef& row, const Sample& sample)
      : row_(row), attrs_(completed(row, sample.attrs)) {
    std::mt19937 random(11);
    std::vector<std::optional<TensorType>> types;
    for (const SampleOperand& operand : sample.operands) {
      inputs_.push_back({DType::f32, dense(operand.type.shape), operand.present});
      types.push_back(operand.present ? std::optional(operand.type) : std::nullopt);
      auto& values = memory_.emplace_back(static_cast<size_t>(numel(operand.type.shape)));
      std::uniform_real_distribution<double> uniform(operand.low, operand.high);
      for (float& value : values)
        value = static_cast<float>(operand.low < operand.high ? uniform(random) : operand.low);
    }
    for (const TensorType& result : infer(row_, types, attrs_))
      outputs_.push_back({result.dtype, dense(result.shape), true});
  }

  // The numbers of the optimiser, from the back.
  void set_number(size_t from_back, float value) {
    memory_[memory_.size() - 1 - from_back] = {value, 0};
  }

  void fill(size_t operand, float value) {
    std::fill(memory_[operand].begin(), memory_[operand].end(), value);
  }

  // Leaves a gap after each element of an operand.
  void spread_out(size_t operand) {
    std::vector<float> spread;
    for (const float value : memory_[operand]) {
      spread.push_back(value);
      spread.push_back(1e9F);
    }
    memory_[operand] = std::move(spread);
    for (int64_t& stride : inputs_[operand].geometry.strides) stride *= 2;
  }

  KernelChoice chosen() const {
    return choose_kernel({row_, attrs_, inputs_, outputs_, target_for_test()});
  }

  template <typename Run>
  std::vector<std::vector<float>> results(int threads, Run run) const {
    ThreadPool pool(threads, level_for_test());
    std::vector<TensorView> inputs, outputs;
    for (size_t i = 0; i < inputs_.size(); ++i)
      inputs.push_back(view(inputs_[i], const_cast<float*>(memory_[i].data())));
    std::vector<std::vector<float>> values;
    for (const KernelOperand& output : outputs_)
      values.emplace_back(static_cast<size_t>(numel(output.geometry.shape)));
    for (size_t i = 0; i < outputs_.size(); ++i)
      outputs.push_back(view(outputs_[i], values[i].data()));
    run({.inputs = inputs, .outputs = outputs, .attrs = attrs_, .pool = pool, .rng = {}});
    return values;
  }

  std::vector<std::vector<float>> results(const PreparedKernel& kernel, int threads) const {
    return results(threads, [&](const KernelCall& call) { run_kernel_often(kernel, call); });
  }

 private:
  static TensorView view(const KernelOperand& operand, float* data) {
    return {reinterpret_cast<std::byte*>(data), DType::f32, operand.geometry.shape,
            operand.geometry.strides, operand.present};
  }

  const OpDef& row_;
  Attrs attrs_;
  std::vector<KernelOperand> inputs_, outputs_;
  std::vector<std::vector<float>> memory_;
};

class Update : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (!has_avx2()) GTEST_SKIP() << "the vector kernels need AVX2";
  }
};

// A multiply-add in double is rounded twice, so the last bit could differ, once in 2^29 or so.
TEST_P(Update, HasTheBitsOfTheReference) {
  const OpDef& row = op(GetParam());
  for (const Sample& sample : row.samples) {
    for (const bool zero_last : {false, true}) {
      UpdateTrial trial(row, sample);
      if (zero_last) trial.set_number(0, 0);
      const KernelChoice choice = trial.chosen();
      EXPECT_EQ(choice.name, "avx2");
      const auto wanted = trial.results(*reference_kernel(row).kernel, 1);
      EXPECT_EQ(trial.results(*choice.kernel, 1), wanted);
      EXPECT_EQ(trial.results(*choice.kernel, 3), wanted);
    }
  }
}

TEST_P(Update, WhatIsRememberedIsNeverSubnormal) {
  const OpDef& row = op(GetParam());
  for (const Sample& sample : row.samples) {
    UpdateTrial trial(row, sample);
    trial.fill(optimizer_parts::grad, 0);
    for (size_t i = optimizer_parts::memory; i < sample.operands.size(); ++i) {
      const bool number = sample.operands[i].type.shape == Shape{2};
      if (!number) trial.fill(i, std::numeric_limits<float>::min());
    }
    trial.set_number(0, 0);  // the weight decay, or RMSprop's momentum
    const auto wanted = trial.results(*reference_kernel(row).kernel, 1);
    EXPECT_EQ(trial.results(*trial.chosen().kernel, 1), wanted);
    for (size_t i = 2; i < wanted.size(); ++i) {
      for (const float value : wanted[i]) EXPECT_FALSE(std::fpclassify(value) == FP_SUBNORMAL);
    }
  }
}
INSTANTIATE_TEST_SUITE_P(Rows, Update, ::testing::Values("sgd", "adam", "rmsprop"));

// A row of updates by products; its samples with a depth of 1, and some of its own.
std::vector<Sample> outer_samples(const OpDef& row) {
  std::vector<Sample> samples = row.samples;
  for (const Shape& shape : {Shape{1, 1}, Shape{1, 19}, Shape{23, 1}, Shape{100, 972}}) {
    Sample& one = samples.emplace_back(row.samples.back());
    for (SampleOperand& operand : one.operands) {
      if (operand.type == row.samples.back().operands[0].type) operand.type.shape = shape;
    }
  }
  for (Sample& sample : samples) {
    const Shape shape = sample.operands[0].type.shape;
    sample.operands[1].type.shape = {shape[0], 1};
    sample.operands.back().type.shape = {1, shape[1]};
  }
  return samples;
}

TEST_P(Update, ByOuterProductsHasTheBitsOfTheReference) {
  const OpDef& row = op(std::string(GetParam()) + "_of_product");
  for (const Sample& sample : outer_samples(row)) {
    for (const bool spread : {false, true}) {
      UpdateTrial trial(row, sample);
      if (spread) {
        trial.spread_out(1);
        trial.spread_out(sample.operands.size() - 1);
      }
      const KernelChoice choice = trial.chosen();
      EXPECT_EQ(choice.name, "avx2");
      const auto wanted = trial.results(*reference_kernel(row).kernel, 1);
      for (const int threads : {1, 2, 3}) {
        EXPECT_EQ(trial.results(*choice.kernel, threads), wanted);
      }
    }
  }
}

TEST_F(Update, DeeperProductsAreLeftToTheReference) {
  const OpDef& row = op("sgd_of_product");
  EXPECT_EQ(UpdateTrial(row, row.samples.back()).chosen().name, "reference");
}

TEST_F(Update, SgdWithoutMomentumLeavesTheVelocity) {
  const OpDef& row = op("sgd");
  for (const Sample& sample : row.samples) {
    UpdateTrial trial(row, sample);
    trial.set_number(2, 0);  // before dampening and weight_decay
    EXPECT_EQ(trial.results(*trial.chosen().kernel, 2),
              trial.results(*reference_kernel(row).kernel, 1));
  }
}

TEST_F(Update, RangesOfElementsTogetherAreAStep) {
  const OpDef& row = op("sgd");
  const UpdateTrial trial(row, row.samples.back());
  const auto in_parts = trial.results(1, [](const KernelCall& call) {
    const SgdUpdate update(call);
    const int64_t count = call.outputs[0].numel();
    for (int64_t begin = 0; begin < count; begin += 37)
      update.run(begin, std::min(count, begin + 37));
    update.finish(call);
  });
  EXPECT_EQ(in_parts, trial.results(*reference_kernel(row).kernel, 1));
}

}  // namespace
}  // namespace tessera::cpu
