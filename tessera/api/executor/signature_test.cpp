// What an executable says about itself is enough to run it without PyTorch.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cstring>

#include "tessera/api/model.h"
#include "tessera/torch/convert.h"

namespace tessera {
namespace {

namespace nn = torch::nn;

// Changes its first input, takes a 64-bit one, returns a constant of its own and one of the user's.
struct EverythingImpl : nn::Module {
  nn::Linear fc{3, 2};
  at::Tensor kept = torch::full({2}, 7, at::kLong);
  EverythingImpl() { register_module("fc", fc); }
  std::tuple<at::Tensor, std::vector<at::Tensor>, int> forward(at::Tensor x, const at::Tensor& i) {
    x.add_(1);
    return {fc(x), {torch::arange(3, at::kFloat), kept, x.index_select(1, i)}, 5};
  }
};
TORCH_MODULE(Everything);

TEST(Signature, SaysAllThatForwardTakesAndReturns) {
  Everything net;
  Options options;
  options.deviceIterations(2);
  auto model = inferenceModel(net, options);
  model(torch::ones({8, 3}), torch::tensor({0, 2, 1, 1}));
  const StepSignature& signature = model.executor().executable().signature();

  EXPECT_EQ(signature.gradient_accumulation, 1);
  EXPECT_EQ(signature.device_iterations, 2);
  ASSERT_EQ(signature.inputs.size(), 2U);
  EXPECT_EQ(signature.inputs[0], (StepInput{"0", {DType::f32, {4, 3}}, DType::f32}));
  EXPECT_EQ(signature.inputs[1], (StepInput{"1", {DType::i32, {2}}, DType::i64}));
  ASSERT_EQ(signature.returned.size(), 4U);
  EXPECT_EQ(signature.returned[0].output, 0U);
  EXPECT_EQ(signature.outputs[0].type, (TensorType{DType::f32, {4, 2}}));
  EXPECT_EQ(signature.outputs[0].mode, OutputMode::all);
  const ReturnedTensor& made = signature.returned[1];
  EXPECT_FALSE(made.output.has_value());
  EXPECT_TRUE(made.is_new);
  const float expected[] = {0, 1, 2};
  ASSERT_EQ(made.constant->size(), sizeof expected);
  EXPECT_EQ(std::memcmp(made.constant->data(), expected, sizeof expected), 0);
  EXPECT_FALSE(signature.returned[2].is_new);
  EXPECT_EQ(signature.returned[2].type, (TensorType{DType::i64, {2}}));
  EXPECT_EQ(signature.structure, "(<tensor>, [<tensor>, <tensor>, <tensor>], 5)");
  ASSERT_EQ(signature.written_back.size(), 1U);
  EXPECT_EQ(signature.written_back[0].input, 0U);
  EXPECT_EQ(signature.outputs[signature.written_back[0].output].mode, OutputMode::all);
  EXPECT_EQ(parse_signature(print(signature)), signature);
}

TEST(Signature, OfATrainingStepHasItsCountsAndAnchors) {
  struct LossImpl : nn::Module {
    nn::Linear fc{3, 1};
    LossImpl() { register_module("fc", fc); }
    at::Tensor forward(const at::Tensor& x) { return identity_loss(fc(x), LossReduction::mean); }
  };
  Options options;
  options.deviceIterations(2);
  options.Training().gradientAccumulation(3);
  options.anchorTensor("weight", "UpdatedVar___fc.weight");
  options.anchorTensor("bias", "fc.bias");
  auto model = trainingModel(nn::ModuleHolder<LossImpl>(), options);
  model(torch::ones({12, 3}));
  const StepSignature& signature = model.executor().executable().signature();
  EXPECT_EQ(signature.gradient_accumulation, 3);
  EXPECT_EQ(signature.outputs[0].mode, OutputMode::final_value);
  EXPECT_EQ(signature.structure, "<tensor>");
  ASSERT_EQ(signature.anchors.size(), 2U);
  for (const StepAnchor& anchor : signature.anchors) {
    const bool state = anchor.name == "weight";
    EXPECT_EQ(anchor.source, state ? StepAnchor::Source::state : StepAnchor::Source::output);
    EXPECT_EQ(anchor.tensor, state ? "UpdatedVar___fc.weight" : "fc.bias");
  }
}

// With the executable, its weights and bytes alone.
TEST(Signature, IsEnoughForACallerWithoutPyTorch) {
  nn::Linear net(3, 2);
  auto model = inferenceModel(net);
  const auto x = torch::rand({4, 3});
  const at::Tensor expected = model(x);

  const Executable& executable = model.executor().executable();
  const StepSignature& signature = executable.signature();
  Session session(std::make_shared<Executable>(executable), 1);
  for (size_t i = 0; i < executable.states().size(); ++i) {
    const std::string& name = executable.states()[i].name;
    session.write_state(i, bytes_of(net->named_parameters()[name].detach()));
  }
  RunRequest request;
  request.inputs = {bytes_of(x).data()};
  std::vector<std::vector<std::byte>> results;
  for (const StepOutput& output : signature.outputs) {
    results.emplace_back(
        static_cast<size_t>(outputs_kept(output.mode, output.period, {}) * bytes(output.type)));
    request.outputs.push_back({results.back().data(), output.mode, output.period});
  }
  session.run(request);
  const auto& returned = results[*signature.returned.at(0).output];
  ASSERT_EQ(returned.size(), bytes_of(expected).size());
  EXPECT_EQ(std::memcmp(returned.data(), bytes_of(expected).data(), returned.size()), 0);
}

}  // namespace
}  // namespace tessera
