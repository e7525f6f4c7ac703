#include "tessera/cli/inspect.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "tessera/base/json_text.h"
#include "tessera/cli/cli_text.h"
#include "tessera/files/executable_file.h"

namespace tessera {
namespace {

constexpr std::array state_kinds = {StateKind::parameter, StateKind::buffer, StateKind::optimizer,
                                    StateKind::accumulator};

// What both forms tell, read and checked.
struct Inspected {
  ExecutableFile file;
  Graph graph;
  StepSignature signature;

  explicit Inspected(const std::string& path) : file(path) {
    file.container().check_all();
    graph = file.graph(FromFile::any_host_call);
    signature = file.signature();
    check_fits(signature, graph);
    for (size_t i = 0; file.has_states() && i < file.states().size(); ++i) file.state_value(i);
  }
};

// A file may name more than there can be.
void add_up(int64_t& sum, int64_t value) {
  if (__builtin_add_overflow(sum, value, &sum)) sum = std::numeric_limits<int64_t>::max();
}

struct Total {
  int64_t tensors = 0, elements = 0, bytes = 0;

  void add(const SavedState& state) {
    ++tensors;
    add_up(elements, numel(state.type.shape));
    add_up(bytes, tessera::bytes(state.type));
  }
};

Total total_of(const ExecutableFile& file, StateKind kind) {
  Total total;
  for (const SavedState& state : file.states()) {
    if (state.kind == kind) total.add(state);
  }
  return total;
}

// Constants are shared among nodes: what counts is what lies in the file.
Total constants_of(const ExecutableFile& file) {
  Total total;
  for (const Container::Entry& entry : file.container().entries()) {
    if (!entry.name.starts_with("blob/")) continue;
    ++total.tensors;
    total.bytes += static_cast<int64_t>(entry.size);
  }
  return total;
}

std::string size_text(int64_t bytes) {
  if (bytes < 1000) return fmt::format("{} B", bytes);
  if (bytes < 1000000) return fmt::format("{:.1f} kB", static_cast<double>(bytes) * 1e-3);
  return fmt::format("{:.1f} MB", static_cast<double>(bytes) * 1e-6);
}

std::string mode_text(OutputMode mode, int64_t period) {
  switch (mode) {
    case OutputMode::final_value:
      return "final";
    case OutputMode::every_n:
      return fmt::format("every {}", period);
    case OutputMode::sum:
      return "sum";
    case OutputMode::all:
      break;
  }
  return "all";
}

std::string plural(int64_t count, std::string_view what) {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
}

// Lines of two or more columns, the first as wide as its widest.
class Table {
 public:
  void add(std::string_view name, std::string rest) {
    rows_.emplace_back(shown(name), std::move(rest));
  }

  std::string text(std::string_view title) const {
    if (rows_.empty()) return "";
    size_t width = 0;
    for (const auto& [name, rest] : rows_) width = std::max(width, name.size());
    std::string out = fmt::format("{}\n", title);
    for (const auto& [name, rest] : rows_) out += fmt::format("  {:<{}}  {}\n", name, width, rest);
    return out;
  }

 private:
  std::vector<std::pair<std::string, std::string>> rows_;
};

std::string header_text(const Inspected& that) {
  const Container& container = that.file.container();
  return fmt::format(
      "{}: {}, format {}, written by {}\n"
      "program '{}': {}, gradient accumulation {}, device iterations {}\n"
      "compiled for {}\n",
      container.path(), size_text(static_cast<int64_t>(container.size())), container_version,
      container.producer(), shown(that.graph.name), plural(that.graph.node_count(), "node"),
      that.signature.gradient_accumulation, that.signature.device_iterations,
      shown(cpu::print(that.file.options().target)));
}

std::string inputs_text(const StepSignature& signature) {
  Table table;
  for (const StepInput& input : signature.inputs) {
    const bool narrowed = input.host != input.type.dtype;
    table.add(input.name,
              to_string(input.type) +
                  (narrowed ? fmt::format(", given as {}", name_of(input.host)) : std::string()));
  }
  return table.text("inputs, for each micro-batch");
}

std::string outputs_text(const StepSignature& signature) {
  Table table;
  for (const StepOutput& output : signature.outputs) {
    table.add(output.name,
              fmt::format("{}, {}", to_string(output.type), mode_text(output.mode, output.period)));
  }
  for (const StepAnchor& anchor : signature.anchors) {
    table.add(anchor.name, fmt::format("anchored: {}", shown(anchor.tensor)));
  }
  return table.text("outputs, for each micro-batch");
}

std::string states_text(const ExecutableFile& file) {
  std::string text;
  for (const StateKind kind : state_kinds) {
    const Total total = total_of(file, kind);
    Table table;
    for (const SavedState& state : file.states()) {
      if (state.kind != kind) continue;
      table.add(state.name,
                fmt::format("{}, {}{}", to_string(state.type), size_text(bytes(state.type)),
                            state.copies > 1 ? fmt::format(", {} times", state.copies) : ""));
    }
    text += table.text(fmt::format("states, {}: {}, {} numbers, {}, {}", name_of(kind),
                                   plural(total.tensors, "tensor"), total.elements,
                                   size_text(total.bytes),
                                   file.has_states() ? "with values" : "without values"));
  }
  return text;
}

std::string optimizer_text(const ExecutableFile& file) {
  Table table;
  for (const SavedNumber& number : file.hyperparameters()) {
    table.add(number.name, fmt::format("{}", number.value));
  }
  return table.text("numbers of the optimiser");
}

std::string rest_text(const ExecutableFile& file) {
  const Total constants = constants_of(file);
  Table metadata, parts, sections;
  for (const auto& [name, text] : file.metadata()) metadata.add(name, shown(text));
  for (const std::string& name : file.part_names()) {
    parts.add(name, size_text(static_cast<int64_t>(file.part(name).size())));
  }
  for (const Container::Entry& entry : file.container().entries()) {
    sections.add(entry.name, fmt::format("{} at {}", size_text(static_cast<int64_t>(entry.size)),
                                         entry.offset));
  }
  std::string text =
      fmt::format("constants: {}, {}\n", constants.tensors, size_text(constants.bytes));
  if (file.rng()) {
    text += fmt::format("random numbers: seed {}, of micro-batch {}\n", file.rng()->seed,
                        file.rng()->step);
  }
  return text + metadata.text("metadata") + parts.text("parts, which only their writer reads") +
         sections.text("sections");
}

// --- as JSON ---

std::string object(const std::vector<std::string>& members) {
  return fmt::format("{{{}}}", fmt::join(members, ", "));
}

std::string list(const std::vector<std::string>& elements) {
  return fmt::format("[{}]", fmt::join(elements, ",\n    "));
}

template <typename T>
std::string member(std::string_view name, const T& json) {
  return fmt::format("{}: {}", json_string(name), json);
}

std::string text_member(std::string_view name, std::string_view text) {
  return member(name, json_string(text));
}

std::string number_json(double value) {
  return std::isfinite(value) ? fmt::format("{}", value) : json_string(fmt::format("{}", value));
}

std::string tensor_json(std::string_view name, const TensorType& type,
                        std::vector<std::string> more) {
  std::vector<std::string> members = {text_member("name", name),
                                      text_member("dtype", name_of(type.dtype)),
                                      member("shape", to_string(type.shape))};
  for (std::string& extra : more) members.push_back(std::move(extra));
  return object(members);
}

std::string signature_json(const StepSignature& signature, std::string_view which) {
  std::vector<std::string> elements;
  if (which == "inputs") {
    for (const StepInput& input : signature.inputs) {
      elements.push_back(
          tensor_json(input.name, input.type, {text_member("given_as", name_of(input.host))}));
    }
  } else {
    for (const StepOutput& output : signature.outputs) {
      elements.push_back(tensor_json(output.name, output.type,
                                     {text_member("mode", mode_text(output.mode, output.period))}));
    }
  }
  return list(elements);
}

std::string states_json(const ExecutableFile& file) {
  std::vector<std::string> elements;
  for (const SavedState& state : file.states()) {
    elements.push_back(
        tensor_json(state.name, state.type,
                    {text_member("kind", name_of(state.kind)), member("bytes", bytes(state.type)),
                     member("copies", state.copies)}));
  }
  return list(elements);
}

std::string optimizer_json(const ExecutableFile& file) {
  std::vector<std::string> members;
  for (const SavedNumber& number : file.hyperparameters()) {
    members.push_back(member(number.name, number_json(number.value)));
  }
  return object(members);
}

std::string target_json(const cpu::Target& target) {
  std::vector<std::string> disabled;
  for (const std::string& kernel : target.disabled_kernels) disabled.push_back(json_string(kernel));
  return object({text_member("level", name_of(target.level)), member("precise", target.precise),
                 member("autotune", target.autotune), member("disabled_kernels", list(disabled))});
}

std::string sections_json(const ExecutableFile& file) {
  std::vector<std::string> sections;
  for (const Container::Entry& entry : file.container().entries()) {
    sections.push_back(object({text_member("name", entry.name), member("offset", entry.offset),
                               member("bytes", entry.size),
                               text_member("xxh3", fmt::format("{:016x}", entry.checksum))}));
  }
  return list(sections);
}

std::string metadata_json(const ExecutableFile& file) {
  std::vector<std::string> members;
  for (const auto& [name, text] : file.metadata()) members.push_back(text_member(name, text));
  return object(members);
}

std::string parts_json(const ExecutableFile& file) {
  std::vector<std::string> members;
  for (const std::string& name : file.part_names()) {
    members.push_back(member(name, file.part(name).size()));
  }
  return object(members);
}

}  // namespace

std::string inspect(const std::string& path) {
  const Inspected that(path);
  return header_text(that) + inputs_text(that.signature) + outputs_text(that.signature) +
         states_text(that.file) + optimizer_text(that.file) + rest_text(that.file);
}

std::string inspect_as_json(const std::string& path) {
  const Inspected that(path);
  const ExecutableFile& file = that.file;
  const Total parameters = total_of(file, StateKind::parameter), constants = constants_of(file);
  std::vector<std::string> members = {
      text_member("file", path),
      member("bytes", file.container().size()),
      member("format", container_version),
      text_member("producer", file.container().producer()),
      text_member("name", that.graph.name),
      member("nodes", that.graph.node_count()),
      member("gradient_accumulation", that.signature.gradient_accumulation),
      member("device_iterations", that.signature.device_iterations),
      member("target", target_json(file.options().target)),
      member("inputs", signature_json(that.signature, "inputs")),
      member("outputs", signature_json(that.signature, "outputs")),
      text_member("returns", that.signature.structure),
      member("parameters", parameters.elements),
      member("states", states_json(file)),
      member("has_values", file.has_states()),
      member("optimizer", optimizer_json(file)),
      member("constants",
             object({member("count", constants.tensors), member("bytes", constants.bytes)})),
      member("metadata", metadata_json(file)),
      member("parts", parts_json(file)),
      member("sections", sections_json(file))};
  if (file.rng()) {
    members.push_back(member(
        "random", object({member("seed", file.rng()->seed), member("step", file.rng()->step)})));
  }
  return fmt::format("{{\n  {}\n}}\n", fmt::join(members, ",\n  "));
}

}  // namespace tessera
