// The one row for everything that has no row of its own.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <charconv>

#include "tessera/base/error.h"
#include "tessera/ops/families.h"
#include "tessera/ops/host_call.h"
#include "tessera/ops/registry.h"
#include "tessera/ops/row_parts.h"
#include "tessera/ops/split_names.h"

namespace tessera {
namespace {

std::atomic<HostCallRunner> registered{nullptr};

TensorType parse_type(std::string_view text) {
  const size_t bracket = text.find('[');
  const auto dtype = dtype_named(text.substr(0, bracket));
  check(dtype && bracket != std::string_view::npos && text.ends_with(']'), ErrorKind::value,
        "a result type looks like f32[2,3], not '{}'", text);
  TensorType type{*dtype, {}};
  for (const std::string& size : split_names(text.substr(bracket + 1, text.size() - bracket - 2))) {
    int64_t& value = type.shape.emplace_back(-1);
    const auto [end, error] = std::from_chars(size.data(), size.data() + size.size(), value);
    check(error == std::errc() && end == size.data() + size.size() && value >= 0, ErrorKind::value,
          "a size is a whole number, not '{}'", size);
  }
  return type;
}

}  // namespace

void set_host_call_runner(HostCallRunner runner) { registered = runner; }

std::string print_host_results(const std::vector<std::optional<TensorType>>& results) {
  std::string text;
  for (const auto& result : results) {
    if (!text.empty()) text += ", ";
    text += result ? to_string(*result) : "-";
  }
  return text;
}

std::vector<std::optional<TensorType>> parse_host_results(std::string_view text) {
  std::vector<std::optional<TensorType>> results;
  for (const std::string& result : split_names(text)) {
    if (result == "-") {
      results.push_back(std::nullopt);
    } else {
      results.push_back(parse_type(result));
    }
  }
  return results;
}

Attrs host_call_in_single(Attrs attrs) {
  auto results = parse_host_results(attrs.text("results"));
  for (auto& result : results) {
    if (result && result->dtype == DType::f16) result->dtype = DType::f32;
  }
  attrs.set("results", print_host_results(results));
  return attrs;
}

std::vector<HostCallCount> host_calls(const Graph& graph) {
  std::vector<HostCallCount> counts;
  for (const Node& node : graph.nodes()) {
    if (op(node).kind != Kind::host) continue;
    const std::string& overload = node.attrs.text("overload");
    const auto same = [&](const HostCallCount& count) { return count.overload == overload; };
    const auto at = std::find_if(counts.begin(), counts.end(), same);
    if (at == counts.end()) {
      counts.push_back({overload, 1});
    } else {
      ++at->nodes;
    }
  }
  return counts;
}

void check_host_calls_can_run(const Graph& graph) {
  if (registered.load()) return;
  std::string list;
  for (const auto& [overload, nodes] : host_calls(graph)) {
    list += fmt::format("{}{}", list.empty() ? "" : ", ", overload);
  }
  check(list.empty(),
        "the program calls PyTorch for {}, and PyTorch is not loaded; run it from a program that "
        "links Tessera's torch library, or from Python",
        list);
}

namespace families {
namespace {

using namespace row_parts;

std::vector<TensorType> host_types(const OpView& op) {
  std::vector<TensorType> types;
  for (auto& result : parse_host_results(op.attrs().text("results"))) {
    if (result) types.push_back(std::move(*result));
  }
  return types;
}

// What PyTorch's kernel does is not known here; at least it reads and writes its tensors.
Cost host_cost(const OpView& op, std::span<const TensorType> results) {
  CopyCost cost;
  for (size_t i = 0; i < op.count(); ++i) {
    if (op.has(i)) cost.bytes_moved += bytes(op.type(i));
  }
  for (const TensorType& type : results) cost.bytes_moved += bytes(type);
  return cost;
}

void run_host_call(const KernelCall& call) {
  const HostCallRunner runner = registered.load();
  check(runner, "{} is PyTorch's, and PyTorch is not loaded", call.attrs.text("overload"));
  runner(call);
}

}  // namespace

std::span<const OpDef> host() {
  static const std::vector<OpDef> rows = {
      {.name = "aten",
       .operands = "operands*",
       .results = "out*",
       .doc = "An operator without a row, run by PyTorch's own kernel",
       .kind = Kind::host,
       .attrs = {text("overload"), text("arguments"), text("results"),
                 maybe(large(integer("key")))},
       // Whether it draws random numbers is PyTorch's business, so none is taken for equal to
       // another.
       .traits = {.reads_random_state = true},
       .infer = host_types,
       .cost = host_cost,
       .cpu = run_host_call,
       .samples = {{{reals({2, 3})},
                    {{"overload", "aten::nonesuch"},
                     {"arguments", "$0"},
                     {"results", "f32[2,3], -, i64[]"}}}}}};
  return rows;
}

}  // namespace families
}  // namespace tessera
