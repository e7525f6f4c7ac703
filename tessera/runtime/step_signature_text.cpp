// The text form of a StepSignature: a line for each part, its attributes in braces.
#include <algorithm>

#include "tessera/base/error.h"
#include "tessera/ir/attribute_lines.h"
#include "tessera/ir/text.h"
#include "tessera/runtime/step_signature.h"

namespace tessera {
namespace {

constexpr std::pair<std::string_view, OutputMode> mode_words[] = {
    {"final", OutputMode::final_value},
    {"every_n", OutputMode::every_n},
    {"all", OutputMode::all},
    {"sum", OutputMode::sum}};
constexpr std::pair<std::string_view, StepAnchor::Source> source_words[] = {
    {"output", StepAnchor::Source::output},
    {"state", StepAnchor::Source::state},
    {"hyperparameter", StepAnchor::Source::hyperparameter}};

Attr index_attr(size_t index) { return static_cast<int64_t>(index); }

void set_mode(Attrs& attrs, OutputMode mode, int64_t period) {
  attrs.set("mode", word_for<OutputMode>(mode_words, mode));
  attrs.set("period", period);
}

Attrs attributes_of(const ReturnedTensor& tensor) {
  Attrs attrs;
  if (tensor.output) {
    attrs.set("output", index_attr(*tensor.output));
    return attrs;
  }
  set_type(attrs, tensor.type);
  if (tensor.constant) attrs.set("constant", tensor.constant);
  attrs.set("new", tensor.is_new);
  return attrs;
}

ReturnedTensor returned_of(AttributeLine& line) {
  if (line.has("output")) return {.output = line.take_index("output")};
  ReturnedTensor tensor;
  tensor.type = line.take_type();
  tensor.is_new = line.take<bool>("new");
  if (!line.has("constant")) return tensor;
  tensor.constant = line.take<Blob>("constant");
  if (tensor.constant->size() != static_cast<size_t>(bytes(tensor.type))) {
    line.fail_with(fmt::format("a constant {} has {} bytes, not {}", to_string(tensor.type),
                               bytes(tensor.type), tensor.constant->size()));
  }
  return tensor;
}

ReplicaGroups groups_of(AttributeLine& line) {
  const auto size = line.take<int64_t>("group_size");
  if (size < 0) line.fail_with(fmt::format("'group_size' is {}, which is no size", size));
  return {size, line.take<bool>("orthogonal")};
}

StepAnchor anchor_of(AttributeLine& line) {
  StepAnchor anchor;
  anchor.name = line.take<std::string>("name");
  anchor.tensor = line.take<std::string>("tensor");
  anchor.source = line.take_word<StepAnchor::Source>("source", source_words);
  anchor.index = line.take_index("index");
  anchor.mode = line.take_word<OutputMode>("mode", mode_words);
  anchor.period = line.take_count("period");
  return anchor;
}

void add_line(StepSignature& signature, AttributeLine& line) {
  if (line.word() == "step") {
    signature.gradient_accumulation = line.take_count("gradient_accumulation");
    signature.device_iterations = line.take_count("device_iterations");
    signature.replicas = line.take_count("replicas");
    if (line.has("instances")) signature.instances = line.take_count("instances");
    signature.input_groups = groups_of(line);
    signature.structure = line.take<std::string>("structure");
  } else if (line.word() == "input") {
    const auto name = line.take<std::string>("name");
    const auto host = line.take<DType>("host");
    signature.inputs.push_back({name, line.take_type(), host});
  } else if (line.word() == "output") {
    const auto name = line.take<std::string>("name");
    const auto mode = line.take_word<OutputMode>("mode", mode_words);
    const int64_t period = line.take_count("period");
    signature.outputs.push_back({name, line.take_type(), mode, period});
  } else if (line.word() == "returns") {
    signature.returned.push_back(returned_of(line));
  } else if (line.word() == "writes_back") {
    const size_t input = line.take_index("input");
    signature.written_back.push_back({input, line.take_index("output")});
  } else if (line.word() == "anchor") {
    signature.anchors.push_back(anchor_of(line));
  } else if (line.word() == "grouped_state") {
    const size_t state = line.take_index("state");
    const bool of_every_replica = line.take<bool>("of_every_replica");
    signature.grouped_states.push_back({state, groups_of(line), of_every_replica});
  } else {
    line.fail_with(fmt::format("'{}' is no part of a signature", line.word()));
  }
  line.end();
}

}  // namespace

std::string print(const StepSignature& signature, BlobTable* blobs) {
  std::string text;
  const auto add = [&](std::string_view word, const Attrs& attrs) {
    text += fmt::format("{} {}\n", word, print_attributes(attrs, blobs));
  };
  Attrs step{{"gradient_accumulation", signature.gradient_accumulation},
             {"device_iterations", signature.device_iterations},
             {"replicas", signature.replicas},
             {"group_size", signature.input_groups.size},
             {"orthogonal", signature.input_groups.orthogonal},
             {"structure", signature.structure}};
  if (signature.instances > 1) step.set("instances", signature.instances);
  add("step", step);
  for (const StepInput& input : signature.inputs) {
    Attrs attrs{{"name", input.name}, {"host", input.host}};
    set_type(attrs, input.type);
    add("input", attrs);
  }
  for (const StepOutput& output : signature.outputs) {
    Attrs attrs{{"name", output.name}};
    set_type(attrs, output.type);
    set_mode(attrs, output.mode, output.period);
    add("output", attrs);
  }
  for (const ReturnedTensor& tensor : signature.returned) add("returns", attributes_of(tensor));
  for (const WrittenBack& changed : signature.written_back) {
    add("writes_back",
        {{"input", index_attr(changed.input)}, {"output", index_attr(changed.output)}});
  }
  for (const StepAnchor& anchor : signature.anchors) {
    Attrs attrs{{"name", anchor.name},
                {"tensor", anchor.tensor},
                {"source", word_for<StepAnchor::Source>(source_words, anchor.source)},
                {"index", index_attr(anchor.index)}};
    set_mode(attrs, anchor.mode, anchor.period);
    add("anchor", attrs);
  }
  for (const GroupedState& grouped : signature.grouped_states) {
    add("grouped_state", {{"state", index_attr(grouped.state)},
                          {"of_every_replica", grouped.of_every_replica},
                          {"group_size", grouped.groups.size},
                          {"orthogonal", grouped.groups.orthogonal}});
  }
  return text;
}

StepSignature parse_signature(std::string_view text, std::span<const Blob> blobs) {
  StepSignature signature;
  bool has_step = false;
  read_attribute_lines(text, "the signature", blobs, [&](AttributeLine& line) {
    const bool is_step = line.word() == "step";
    if (is_step == has_step) {
      line.fail_with(is_step ? "there are two steps" : "a signature begins with its step");
    }
    has_step = true;
    add_line(signature, line);
  });
  check(has_step, ErrorKind::value, "a signature without a step: the text is empty");
  return signature;
}

}  // namespace tessera
