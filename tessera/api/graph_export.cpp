#include "tessera/api/graph_export.h"

#include <fmt/ranges.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <unordered_map>

#include "tessera/api/executor/tensor_names.h"
#include "tessera/base/error.h"
#include "tessera/base/json_text.h"
#include "tessera/base/log.h"
#include "tessera/base/replace_file.h"
#include "tessera/ir/text.h"

namespace tessera {
namespace {

// The first name of each value; values without one are called by their numbers.
class ValueNames {
 public:
  explicit ValueNames(const Graph& graph) {
    const TensorNames all(graph, {});
    for (const TensorName& named : all.all()) {
      if (named.kind == TensorName::Kind::value) names_.emplace(named.value, named.name);
    }
    for (const State& state : graph.states()) {
      if (state.after_update != state.initial) {
        names_.emplace(state.after_update, "UpdatedVar___" + state.name);
      }
    }
  }
  std::string of(ValueId value) const {
    const auto at = names_.find(value);
    return at == names_.end() ? fmt::format("%{}", value.index) : at->second;
  }

 private:
  std::unordered_map<ValueId, std::string> names_;
};

std::string node_name(const Node& node) {
  const std::string scope = scope_of(node);
  return fmt::format("{}{}{}", scope, scope.empty() ? "" : "/", operator_name(node));
}

std::string tensors_json(const Graph& graph, const ValueNames& names,
                         const std::vector<ValueId>& values) {
  std::vector<std::string> tensors;
  for (const ValueId value : values) {
    if (!value.valid()) continue;
    const TensorType& type = graph.type(value);
    tensors.push_back(fmt::format(R"({{"name": {}, "shape": {}, "dtype": {}}})",
                                  json_string(names.of(value)), json_string(to_string(type.shape)),
                                  json_string(name_of(type.dtype))));
  }
  return fmt::format("[{}]", fmt::join(tensors, ", "));
}

std::string attributes_json(const Node& node) {
  std::vector<std::string> attributes;
  for (const auto& [name, attr] : node.attrs) {
    attributes.push_back(fmt::format("{}: {}", json_string(name), json_string(print_attr(attr))));
  }
  const Origin& origin = node.origin;
  if (!origin.file.empty()) {
    attributes.push_back(fmt::format(R"("__location": {})",
                                     json_string(fmt::format("{}:{}", origin.file, origin.line))));
  }
  attributes.push_back(fmt::format(R"("__phase": {})", json_string(name_of(node.phase))));
  return fmt::format("{{{}}}", fmt::join(attributes, ", "));
}

}  // namespace

std::string graph_json(const Graph& graph) {
  const ValueNames names(graph);
  std::vector<std::string> entries;
  for (const Node& node : graph.nodes()) {
    entries.push_back(
        fmt::format(R"({{"type": {}, "name": {}, "inputs": {}, "outputs": {}, "attributes": {}}})",
                    json_string(operator_name(node)), json_string(node_name(node)),
                    tensors_json(graph, names, node.operands),
                    tensors_json(graph, names, node.results), attributes_json(node)));
  }
  return fmt::format("{{\"maingraph\": [{}]}}", fmt::join(entries, ",\n"));
}

std::string graph_dot(const Graph& graph) {
  std::string out = fmt::format("digraph {} {{\n  node [shape=box];\n", json_string(graph.name));
  // Values are edges; those from outside the operators get a box of their own.
  std::unordered_map<ValueId, std::string> made_by;
  const auto add_source = [&](std::string_view name, ValueId value) {
    made_by[value] = fmt::format("v{}", value.index);
    out += fmt::format("  v{} [label={}, shape=ellipse];\n", value.index, json_string(name));
  };
  for (const Input& input : graph.inputs()) add_source(input.name, input.value);
  for (const State& state : graph.states()) add_source(state.name, state.initial);
  for (size_t i = 0; i < graph.nodes().size(); ++i) {
    const Node& node = graph.nodes()[i];
    out += fmt::format("  n{} [label={}];\n", i, json_string(node_name(node)));
    for (const ValueId result : node.results) made_by[result] = fmt::format("n{}", i);
    for (const ValueId operand : node.operands) {
      if (!operand.valid()) continue;
      out += fmt::format("  {} -> n{} [label={}];\n", made_by[operand], i,
                         json_string(to_string(graph.type(operand))));
    }
  }
  for (size_t i = 0; i < graph.outputs().size(); ++i) {
    const Output& output = graph.outputs()[i];
    out += fmt::format("  out{} [label={}, shape=ellipse];\n  {} -> out{};\n", i,
                       json_string("output " + output.name), made_by[output.value], i);
  }
  return out + "}\n";
}

void export_graph(const Graph& graph) {
  const char* variable = std::getenv("POPTORCH_EXPORT_PROTO_FILE");
  if (!variable || !*variable) return;
  const std::string path = variable;
  std::error_code failure;
  const auto folder = std::filesystem::path(path).parent_path();
  if (!folder.empty()) std::filesystem::create_directories(folder, failure);
  const bool dot = std::filesystem::path(path).extension() == ".dot";
  const bool written = replace_file(path, dot ? graph_dot(graph) : print(graph));
  check(written,
        "POPTORCH_EXPORT_PROTO_FILE: the graph cannot be written to '{}': {}; is the folder "
        "writable, and is there space?",
        path, std::strerror(errno));
  log(LogLevel::info, "wrote the graph of '{}' to {}", graph.name, path);
}

}  // namespace tessera
