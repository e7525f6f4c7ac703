// Rewrites of graphs as texts, in files of the folder testdata: cases stand between lines `//
// ====`; what a graph must become follows a line `// ----`, without one it must stay as it is.
// Attributes with their default values may be left out.
#pragma once

#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "tessera/backend/cpu/interpreter_for_test.h"
#include "tessera/ir/text.h"
#include "tessera/ops/builder.h"
#include "tessera/ops/registry.h"

namespace tessera::cpu {

struct RewriteCase {
  std::string name;  // the first line
  Graph before, after;
};

inline std::vector<std::string> split_at_lines(const std::string& text,
                                               const std::string& separator) {
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

inline Graph read_graph_text(const std::string& text) {
  Graph graph = parse(text);
  for (int32_t i = 0; i < graph.node_count(); ++i) {
    Node& node = graph.node({i});
    node.attrs = completed(op(node), node.attrs);
  }
  verify(graph);
  return graph;
}

inline std::vector<RewriteCase> rewrite_cases(const std::string& file) {
  const auto path =
      std::filesystem::path(TESSERA_SOURCE_DIR) / "tessera/backend/cpu/lower/testdata" / file;
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  std::vector<RewriteCase> cases;
  for (const std::string& one : split_at_lines(text.str(), "// ====")) {
    const auto parts = split_at_lines(one, "// ----");
    cases.push_back(
        {one.substr(0, one.find('\n')), read_graph_text(parts[0]), read_graph_text(parts.back())});
  }
  return cases;
}

// The outputs for random inputs, with reference kernels. Whole numbers and truth values are 0 or 1.
inline std::vector<Bytes> run_on_samples(const Graph& graph) {
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

}  // namespace tessera::cpu
