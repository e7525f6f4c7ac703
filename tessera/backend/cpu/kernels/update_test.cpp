#include "tessera/backend/cpu/kernels/update.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "tessera/base/cpu_level.h"
#include "tessera/ops/builder.h"
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

  KernelChoice chosen() const { return choose_kernel({row_, attrs_, inputs_, outputs_}); }

  template <typename Run>
  std::vector<std::vector<float>> results(int threads, Run run) const {
    ThreadPool pool(threads);
    std::vector<TensorView> inputs, outputs;
    for (size_t i = 0; i < inputs_.size(); ++i)
      inputs.push_back(view(inputs_[i], const_cast<float*>(memory_[i].data())));
    std::vector<std::vector<float>> values;
    for (const KernelOperand& output : outputs_)
      values.emplace_back(static_cast<size_t>(numel(output.geometry.shape)));
    for (size_t i = 0; i < outputs_.size(); ++i)
      outputs.push_back(view(outputs_[i], values[i].data()));
    run(KernelCall{inputs, outputs, attrs_, pool, {}});
    return values;
  }

  std::vector<std::vector<float>> results(const PreparedKernel& kernel, int threads) const {
    return results(threads, [&](const KernelCall& call) { kernel.run(call, {}); });
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
INSTANTIATE_TEST_SUITE_P(Rows, Update, ::testing::Values("sgd", "adam", "rmsprop"));

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
