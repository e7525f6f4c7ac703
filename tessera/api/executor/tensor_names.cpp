#include "tessera/api/executor/tensor_names.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <unordered_map>

#include "tessera/base/error.h"
#include "tessera/ops/registry.h"

namespace tessera {
namespace {

constexpr std::string_view updated_prefix = "UpdatedVar___";

// How many letters must be changed, left out or put in to make one of the other.
size_t distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i + 1;
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t changed = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({row[j + 1] + 1, row[j] + 1, changed});
    }
  }
  return row.back();
}

std::vector<std::string> most_alike(std::string_view name, std::vector<std::string> names) {
  constexpr size_t shown = 3;
  std::stable_sort(names.begin(), names.end(), [&](const auto& a, const auto& b) {
    return distance(name, a) < distance(name, b);
  });
  names.resize(std::min(names.size(), shown));
  return names;
}

// `Gradient___model.fc.bias` without `model.`; empty where it is not of that form.
std::string without_model(std::string_view name) {
  constexpr std::string_view wrapper = "model.";
  const size_t bar = name.rfind("___");
  const size_t start = bar == std::string_view::npos ? 0 : bar + 3;
  if (!name.substr(start).starts_with(wrapper)) return {};
  return std::string(name.substr(0, start)) + std::string(name.substr(start + wrapper.size()));
}

}  // namespace

std::string operator_name(const Node& node) {
  const bool host = op(node).kind == tessera::Kind::host;
  std::string_view text = host ? std::string_view(node.attrs.text("overload")) : node.op;
  if (const size_t space = text.rfind(':'); space != std::string_view::npos) {
    text.remove_prefix(space + 1);  // aten::
  }
  std::string name;
  bool upper = true;
  for (const char c : text) {
    if (c == '_' || c == '.') {
      upper = true;
      continue;
    }
    name += upper && c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
    upper = false;
  }
  return name;
}

std::string scope_of(const Node& node) {
  std::string scope = node.origin.module;
  std::replace(scope.begin(), scope.end(), '.', '/');
  if (node.origin.backward) scope += scope.empty() ? "backward" : "/backward";
  return scope;
}

TensorNames::TensorNames(const Graph& graph, const NamingRequest& request) {
  add_inputs(graph);
  if (request.loss.valid()) add("loss", request.loss);
  if (request.final_loss_scale.valid()) add("finalLossScale", request.final_loss_scale);
  add_states(graph);
  for (const Output& gradient : request.gradients) add(gradient.name, gradient.value);
  for (size_t i = 0; i < request.numbers.size(); ++i) {
    names_.push_back({request.numbers[i], TensorName::Kind::hyperparameter, {}, i});
  }
  add_nodes(graph, request.module_scopes);
}

void TensorNames::add(std::string name, ValueId value) {
  names_.push_back({std::move(name), TensorName::Kind::value, value, 0});
}

void TensorNames::add_inputs(const Graph& graph) {
  size_t count = 0;
  for (const Input& input : graph.inputs()) {
    if (input.kind != InputKind::data) continue;
    add(count == 0 ? "input" : fmt::format("input/{}", count), input.value);
    ++count;
  }
}

void TensorNames::add_states(const Graph& graph) {
  for (size_t i = 0; i < graph.states().size(); ++i) {
    const State& state = graph.states()[i];
    add(state.name, state.initial);
    const std::string updated = std::string(updated_prefix) + state.name;
    if (state.kind == StateKind::accumulator) {
      add(updated, state.after_micro_batch);  // an update leaves it empty
    } else if (state.after_update != state.initial) {
      names_.push_back({updated, TensorName::Kind::updated, {}, i});
    }
  }
}

void TensorNames::add_nodes(const Graph& graph, bool module_scopes) {
  const std::vector<int32_t> uses = count_uses(graph);
  std::unordered_map<std::string, size_t> used;
  for (const Node& node : graph.nodes()) {
    // What an update computes has no place among the outputs of micro-batches.
    if (node.phase == Phase::update || op(node).kind == tessera::Kind::source) continue;
    std::string name = module_scopes ? scope_of(node) : "";
    if (!name.empty()) name += '/';
    name += operator_name(node);
    if (const size_t again = used[name]++; again > 0) name += fmt::format("/{}", again);
    for (size_t i = 0; i < node.results.size(); ++i) {
      // Taken apart, an operator need not make what nobody uses.
      if (op(node).decompose && uses[static_cast<size_t>(node.results[i].index)] == 0) continue;
      add(fmt::format("{}:{}", name, i), node.results[i]);
    }
  }
}

std::vector<std::string> TensorNames::list() const {
  std::vector<std::string> names;
  names.reserve(names_.size());
  for (const TensorName& named : names_) names.push_back(named.name);
  return names;
}

const TensorName* TensorNames::look_up(std::string_view name) const {
  const auto at = std::find_if(names_.begin(), names_.end(),
                               [&](const TensorName& named) { return named.name == name; });
  return at == names_.end() ? nullptr : &*at;
}

const TensorName& TensorNames::find(std::string_view name) const {
  if (const TensorName* found = look_up(name)) return *found;
  if (const TensorName* found = look_up(without_model(name))) return *found;
  fail(ErrorKind::user,
       "there is no tensor '{}' in the program; the most alike are {}; getTensorNames() lists all",
       name, fmt::join(most_alike(name, list()), ", "));
}

}  // namespace tessera
