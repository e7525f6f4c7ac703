// Runs the cases in testdata/fuse_elementwise.ir, text in and text out: cases stand between lines
// `// ====`; what a graph must become follows a line `// ----`, without one it must stay as it is.
// Both are also run, with reference kernels: they must give the same bits.
#include "tessera/backend/cpu/lower/fuse_elementwise.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>

#include "tessera/backend/cpu/interpreter_for_test.h"
#include "tessera/ir/text.h"
#include "tessera/ops/builder.h"

namespace tessera::cpu {
namespace {

std::string read_file(const std::filesystem::path& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

std::vector<std::string> split_at_lines(const std::string& text, const std::string& separator) {
  std::vector<std::string> parts(1);
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line == separator) {
      parts.emplace_back();
    } else {
      parts.back() += line + '\n';
    }
  }
  return parts;
}

Graph read(const std::string& text) {
  const Graph sparse = parse(text);
  Graph graph = sparse;
  for (int32_t i = 0; i < graph.node_count(); ++i) {
    Node& node = graph.node({i});
    node.attrs = completed(op(node), node.attrs);
  }
  verify(graph);
  return graph;
}

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

std::vector<std::string> cases() {
  const auto file = std::filesystem::path(TESSERA_SOURCE_DIR) /
                    "tessera/backend/cpu/lower/testdata/fuse_elementwise.ir";
  return split_at_lines(read_file(file), "// ====");
}

TEST(FuseElementwise, BecomesWhatIsExpected) {
  for (const auto& text : cases()) {
    SCOPED_TRACE(text.substr(0, text.find('\n')));
    const auto parts = split_at_lines(text, "// ----");
    ASSERT_LE(parts.size(), 2U);
    const Graph graph = read(parts[0]);
    const Graph fused = fuse_elementwise(graph);
    verify(fused);
    EXPECT_EQ(print(fused), print(read(parts.back())));
    EXPECT_EQ(run(fused), run(graph));
  }
}

}  // namespace
}  // namespace tessera::cpu
