#include "tessera/files/executable_file.h"

#include <algorithm>

#include "tessera/base/error.h"
#include "tessera/files/program_text.h"
#include "tessera/ir/attribute_lines.h"
#include "tessera/ir/text.h"

namespace tessera {
namespace {

constexpr std::string_view part_prefix = "part/";

std::string blob_name(size_t number) { return fmt::format("blob/{}", number); }
std::string state_name(size_t number) { return fmt::format("state/{}", number); }

std::span<const std::byte> as_bytes(std::string_view text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

std::string print_metadata(const std::map<std::string, std::string>& metadata) {
  std::string text;
  for (const auto& [name, value] : metadata) {
    text += fmt::format("entry {}\n", print_attributes({{"name", name}, {"text", value}}));
  }
  return text;
}

std::map<std::string, std::string> parse_metadata(std::string_view text) {
  std::map<std::string, std::string> metadata;
  read_attribute_lines(text, "the metadata", {}, [&](AttributeLine& line) {
    if (line.word() != "entry") line.fail_with(fmt::format("'{}' is no entry", line.word()));
    auto name = line.take<std::string>("name");
    auto value = line.take<std::string>("text");
    line.end();
    if (!metadata.emplace(name, std::move(value)).second) {
      line.fail_with(fmt::format("there are two entries '{}'", name));
    }
  });
  return metadata;
}

int64_t copies_of(const StateInfo& state, std::span<const std::byte> value) {
  const auto size = static_cast<size_t>(bytes(state.type));
  if (size == 0 && value.empty()) return 1;
  TESSERA_INVARIANT(size > 0 && !value.empty() && value.size() % size == 0,
                    "the value of state '{}', {}, has {} bytes", state.name, to_string(state.type),
                    value.size());
  return static_cast<int64_t>(value.size() / size);
}

ProgramFacts facts_of(const ExecutableContents& contents) {
  const Executable& executable = *contents.executable;
  ProgramFacts facts;
  facts.rng = contents.rng;
  facts.options = contents.options;
  facts.options.tuned_kernels = executable.tuned_kernels();
  facts.has_values = !contents.states.empty();
  TESSERA_INVARIANT(!facts.has_values || contents.states.size() == executable.states().size(),
                    "{} values of {} states", contents.states.size(), executable.states().size());
  for (size_t i = 0; i < executable.states().size(); ++i) {
    const StateInfo& state = executable.states()[i];
    const int64_t copies = facts.has_values ? copies_of(state, contents.states[i]) : 1;
    facts.states.push_back({state.name, state.kind, state.type, copies});
  }
  const auto& names = executable.hyperparameters();
  const auto& numbers = contents.hyperparameters;
  TESSERA_INVARIANT(numbers.empty() || numbers.size() == names.size(),
                    "{} values of {} hyper-parameters", numbers.size(), names.size());
  for (size_t i = 0; i < numbers.size(); ++i) {
    facts.hyperparameters.push_back({names[i].name, numbers[i]});
  }
  return facts;
}

// The sections, and the texts among them.
class Sections {
 public:
  explicit Sections(const ExecutableContents& contents) {
    const Executable& executable = *contents.executable;
    graph_ = print(executable.graph(), {.blobs = &blobs_});
    signature_ = print(executable.signature(), &blobs_);
    program_ = print(facts_of(contents));
    metadata_ = print_metadata(contents.metadata);
    all_ = {{"metadata", as_bytes(metadata_)},
            {"program", as_bytes(program_)},
            {"signature", as_bytes(signature_)},
            {"graph", as_bytes(graph_)}};
    for (size_t i = 0; i < blobs_.blobs().size(); ++i) {
      all_.push_back({blob_name(i), *blobs_.blobs()[i]});
    }
    for (size_t i = 0; i < contents.states.size(); ++i) {
      all_.push_back({state_name(i), contents.states[i]});
    }
    for (const auto& [name, part] : contents.parts) {
      all_.push_back({fmt::format("{}{}", part_prefix, name), part});
    }
  }
  Sections(const Sections&) = delete;
  Sections& operator=(const Sections&) = delete;

  std::span<const Section> all() const { return all_; }

 private:
  BlobTable blobs_;
  std::string graph_, signature_, program_, metadata_;
  std::vector<Section> all_;
};

}  // namespace

void write_executable(const std::string& path, const ExecutableContents& contents) {
  write_container(path, Sections(contents).all());
}

std::vector<std::byte> executable_bytes(const ExecutableContents& contents) {
  return container_bytes(Sections(contents).all());
}

ExecutableFile::ExecutableFile(const std::string& path) : ExecutableFile(Container(path)) {}

ExecutableFile::ExecutableFile(Container container) : container_(std::move(container)) {
  const ErrorContext where("reading '{}'", path());
  metadata_ = parse_metadata(container_.text("metadata"));
  ProgramFacts facts = parse_program_facts(container_.text("program"));
  options_ = std::move(facts.options);
  has_values_ = facts.has_values;
  states_ = std::move(facts.states);
  hyperparameters_ = std::move(facts.hyperparameters);
  rng_ = facts.rng;
}

std::optional<std::string_view> ExecutableFile::metadata(std::string_view name) const {
  const auto at = metadata_.find(std::string(name));
  if (at == metadata_.end()) return std::nullopt;
  return at->second;
}

std::vector<std::string> ExecutableFile::part_names() const {
  std::vector<std::string> names;
  for (const Container::Entry& entry : container_.entries()) {
    if (entry.name.starts_with(part_prefix)) names.push_back(entry.name.substr(part_prefix.size()));
  }
  return names;
}

bool ExecutableFile::has_part(std::string_view name) const {
  return container_.has(fmt::format("{}{}", part_prefix, name));
}

std::span<const std::byte> ExecutableFile::part(std::string_view name) const {
  return container_.section(fmt::format("{}{}", part_prefix, name));
}

std::span<const std::byte> ExecutableFile::state_value(size_t index) const {
  check(has_values_, ErrorKind::value, "'{}' holds a program without the values of its states",
        path());
  const SavedState& state = states_.at(index);
  const auto value = container_.section(state_name(index));
  const auto size = static_cast<uint64_t>(bytes(state.type));
  const bool fits = size == 0 ? value.empty()
                              : value.size() % size == 0 &&
                                    value.size() / size == static_cast<uint64_t>(state.copies);
  check(fits, ErrorKind::value,
        "'{}' is damaged: the value of '{}', {} times {}, has {} bytes, not {} times {}", path(),
        state.name, state.copies, to_string(state.type), value.size(), state.copies, size);
  return value;
}

std::vector<Blob> ExecutableFile::blobs() const {
  std::vector<Blob> blobs;
  while (container_.has(blob_name(blobs.size()))) {
    const auto bytes = container_.section(blob_name(blobs.size()));
    blobs.push_back(std::make_shared<const std::vector<std::byte>>(bytes.begin(), bytes.end()));
  }
  return blobs;
}

Graph ExecutableFile::graph(FromFile limit) const {
  const ErrorContext where("reading the graph of '{}'", path());
  return read_graph(container_.text("graph"), limit, blobs());
}

StepSignature ExecutableFile::signature() const {
  const ErrorContext where("reading the signature of '{}'", path());
  return parse_signature(container_.text("signature"), blobs());
}

}  // namespace tessera
