// Text in and text out. Both are also run, with reference kernels: they must give the same bits.
#include "tessera/backend/cpu/lower/fuse_elementwise.h"

#include <gtest/gtest.h>

#include <random>

#include "tessera/backend/cpu/interpreter_for_test.h"
#include "tessera/backend/cpu/lower/rewrite_cases_for_test.h"

namespace tessera::cpu {
namespace {

std::vector<Bytes> run(const Graph& graph) {
  std::mt19937 random(5);
  std::uniform_real_distribution<float> uniform(-2, 2);
  std::vector<Bytes> inputs;
  for (const Input& input : graph.inputs()) {
    const TensorType& type = graph.type(input.value);
    Bytes& memory = inputs.emplace_back(static_cast<size_t>(bytes(type)));
    for (size_t i = 0; i < memory.size(); i += size_of(type.dtype)) {
      const float value = uniform(random);
      if (type.dtype == DType::f32) {
        std::memcpy(&memory[i], &value, sizeof value);
      } else {
        memory[i] = static_cast<std::byte>(value > 0);
      }
    }
  }
  Interpreter interpreter(graph);
  return interpreter.run_micro_batch(inputs);
}

TEST(FuseElementwise, BecomesWhatIsExpected) {
  for (const RewriteCase& one : rewrite_cases("fuse_elementwise.ir")) {
    SCOPED_TRACE(one.name);
    const Graph fused = fuse_elementwise(one.before);
    verify(fused);
    EXPECT_EQ(print(fused), print(one.after));
    EXPECT_EQ(run(fused), run(one.before));
  }
}

}  // namespace
}  // namespace tessera::cpu
