// What a graph from a file may call of PyTorch's: every operator on the list either runs or is
// refused by a sentence, whatever tensors and arguments it gets.
#include <ATen/core/dispatch/Dispatcher.h>

#include "tessera/base/error.h"
#include "tessera/base/random_cases_for_test.h"
#include "tessera/ops/host_call.h"
#include "tessera/ops/run_op_for_test.h"
#include "tessera/runtime/random_graph_for_test.h"
#include "tessera/torch/host_call.h"

namespace tessera {
namespace {

std::vector<c10::OperatorName> allowed_operators() {
  std::vector<c10::OperatorName> names;
  for (const c10::OperatorName& name : c10::Dispatcher::singleton().getAllOpNames()) {
    if (may_be_in_file(c10::toString(name))) names.push_back(name);
  }
  return names;
}

class RandomCall {
 public:
  RandomCall(uint64_t seed, const std::vector<c10::OperatorName>& names) : draw_(seed) {
    const c10::OperatorName name = draw_.one_of(names);
    const auto op = c10::Dispatcher::singleton().findSchema(name);
    std::string arguments, results;
    for (const c10::Argument& argument : op->schema().arguments()) {
      arguments += (arguments.empty() ? "" : ", ") + value(argument.type());
    }
    for (size_t i = 0; i < op->schema().returns().size(); ++i) results += i == 0 ? "-" : ", -";
    attrs = {{"overload", c10::toString(name)}, {"arguments", arguments}, {"results", results}};
  }

  Attrs attrs;
  std::vector<HostTensor> operands;

 private:
  std::string value(const c10::TypePtr& type) {
    const std::string name = type->str();
    if (draw_.once_in(10)) return "none";
    if (name.find("Generator") != std::string::npos) return "none";
    if (name.find("Tensor") != std::string::npos) return tensor();
    if (name.find("bool") != std::string::npos) return draw_.once_in(2) ? "true" : "false";
    if (name.find("str") != std::string::npos) return draw_.once_in(2) ? "'reduced'" : "'floor'";
    if (name.find("[]") != std::string::npos) return fmt::format("[{}]", draw_.whole());
    if (name.find("int") != std::string::npos) return std::to_string(draw_.whole());
    return fmt::format("{:e}", draw_.number());
  }

  // Mostly square matrices: linear algebra takes little else.
  std::string tensor() {
    static const std::vector<Shape> shapes = {
        {3, 3}, {3, 3}, {2, 3, 3}, {3, 2}, {0, 3}, {3}, {}, {1, 1}, {1, 2, 3, 3}, {1, 3, 3, 2}};
    DType dtype = draw_.once_in(3) ? draw_.dtype() : DType::f32;
    HostTensor operand(TensorType{dtype, draw_.one_of(shapes)});
    operand.memory = random_values(draw_, operand.type);
    operands.push_back(std::move(operand));
    return fmt::format("${}", operands.size() - 1);
  }

  Draw draw_;
};

TEST(RandomHostCalls, RunOrAreRefusedByASentence) {
  use_pytorch_for_host_calls();
  const auto names = allowed_operators();
  ASSERT_GT(names.size(), 90U);
  RandomCases().run(3000, [&](uint64_t seed, const RandomCases::Describe& describe) {
    RandomCall random(seed, names);
    std::string text = random.attrs.text("overload") + "\n" + random.attrs.text("arguments");
    std::vector<TensorView> inputs;
    for (HostTensor& operand : random.operands) {
      inputs.push_back(operand.view());
      text += " " + to_string(operand.type);
    }
    describe(text);
    ThreadPool pool(1);
    try {
      op("aten").cpu({inputs, {}, random.attrs, pool, {}});
    } catch (const Error&) {
      return CaseEnd::refused;
    }
    return CaseEnd::ran;
  });
}

TEST(HostCallsOfFiles, NoneTouchesFilesOrMemory) {
  for (const char* name :
       {"aten::from_file", "aten::as_strided", "aten::set_.source_Tensor", "aten::resize_",
        "aten::_embedding_bag", "aten::linalg_lu_solve", "aten::lu_unpack", "aten::save",
        "aten::segment_reduce", "aten::empty_strided", "aten::_reshape_alias", "prim::Print",
        "igamma", "aten::igamma.out", "aten::linalg_qr.out", ""}) {
    EXPECT_FALSE(may_be_in_file(name)) << name;
  }
  EXPECT_TRUE(may_be_in_file("aten::igamma_"));
  EXPECT_TRUE(may_be_in_file("aten::xlogy_.Tensor"));
  EXPECT_TRUE(may_be_in_file("aten::linalg_inv_ex"));
}

}  // namespace
}  // namespace tessera
