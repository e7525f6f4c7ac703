#include "tessera/files/program_text.h"

#include <bit>

#include "tessera/base/error.h"
#include "tessera/ir/attribute_lines.h"
#include "tessera/ir/text.h"

namespace tessera {
namespace {

constexpr std::pair<std::string_view, CpuLevel> level_words[] = {{"portable", CpuLevel::portable},
                                                                 {"avx2", CpuLevel::avx2}};
constexpr std::pair<std::string_view, Rounding> rounding_words[] = {
    {"nearest", Rounding::nearest}, {"stochastic", Rounding::stochastic}};
constexpr std::pair<std::string_view, StateKind> kind_words[] = {
    {"parameter", StateKind::parameter},
    {"buffer", StateKind::buffer},
    {"optimizer", StateKind::optimizer},
    {"accumulator", StateKind::accumulator}};

class Text {
 public:
  void add(std::string_view word, const Attrs& attrs) {
    text_ += fmt::format("{} {}\n", word, print_attributes(attrs));
  }
  std::string take() { return std::move(text_); }

 private:
  std::string text_;
};

void add_options(Text& text, const CompileOptions& options) {
  const cpu::Target& target = options.target;
  text.add("target", {{"level", word_for<CpuLevel>(level_words, target.level)},
                      {"precise", target.precise},
                      {"autotune", target.autotune}});
  for (const std::string& kernel : target.disabled_kernels) {
    text.add("disabled_kernel", {{"name", kernel}});
  }
  const HalfArithmetic& halves = options.halves;
  text.add("options", {{"keep_operators", options.keep_operators},
                       {"rounding", word_for<Rounding>(rounding_words, halves.rounding)},
                       {"matmul_partials", halves.matmul_partials},
                       {"convolution_partials", halves.convolution_partials}});
  for (const std::string& pass : options.disabled_passes) {
    text.add("disabled_pass", {{"name", pass}});
  }
  for (const auto& [use, kernel] : options.tuned_kernels) {
    text.add("tuned", {{"use", use}, {"kernel", kernel}});
  }
}

void add_states(Text& text, const ProgramFacts& facts) {
  for (const SavedState& state : facts.states) {
    Attrs attrs{{"name", state.name}, {"kind", word_for<StateKind>(kind_words, state.kind)}};
    set_type(attrs, state.type);
    if (facts.has_values) attrs.set("copies", state.copies);
    text.add("state", attrs);
  }
}

DType take_partials(AttributeLine& line, std::string_view name) {
  const auto dtype = line.take<DType>(name);
  if (dtype != DType::f32 && dtype != DType::f16) {
    line.fail_with(fmt::format("'{}' is {}, which is neither f32 nor f16", name, name_of(dtype)));
  }
  return dtype;
}

void take_target(cpu::Target& target, AttributeLine& line) {
  target.level = line.take_word<CpuLevel>("level", level_words);
  target.precise = line.take<bool>("precise");
  target.autotune = line.take<bool>("autotune");
}

void take_options(CompileOptions& options, AttributeLine& line) {
  options.keep_operators = line.take<bool>("keep_operators");
  options.halves.rounding = line.take_word<Rounding>("rounding", rounding_words);
  options.halves.matmul_partials = take_partials(line, "matmul_partials");
  options.halves.convolution_partials = take_partials(line, "convolution_partials");
}

void take_state(ProgramFacts& facts, AttributeLine& line) {
  SavedState state;
  state.name = line.take<std::string>("name");
  state.kind = line.take_word<StateKind>("kind", kind_words);
  state.type = line.take_type();
  const bool has_value = line.has("copies");
  if (has_value) state.copies = line.take_count("copies");
  if (facts.states.empty()) facts.has_values = has_value;
  if (has_value != facts.has_values) line.fail_with("some states have values, others none");
  facts.states.push_back(std::move(state));
}

void take_tuned(CompileOptions& options, AttributeLine& line) {
  auto use = line.take<std::string>("use");
  options.tuned_kernels[std::move(use)] = line.take<std::string>("kernel");
}

void take_hyperparameter(ProgramFacts& facts, AttributeLine& line) {
  auto name = line.take<std::string>("name");
  facts.hyperparameters.push_back({std::move(name), line.take<double>("value")});
}

RngState take_random(AttributeLine& line) {
  return {.seed = std::bit_cast<uint64_t>(line.take<int64_t>("seed")),
          .step = std::bit_cast<uint64_t>(line.take<int64_t>("step"))};
}

void add_line(ProgramFacts& facts, AttributeLine& line) {
  CompileOptions& options = facts.options;
  if (line.word() == "target") {
    take_target(options.target, line);
  } else if (line.word() == "disabled_kernel") {
    options.target.disabled_kernels.push_back(line.take<std::string>("name"));
  } else if (line.word() == "options") {
    take_options(options, line);
  } else if (line.word() == "disabled_pass") {
    options.disabled_passes.push_back(line.take<std::string>("name"));
  } else if (line.word() == "tuned") {
    take_tuned(options, line);
  } else if (line.word() == "state") {
    take_state(facts, line);
  } else if (line.word() == "hyperparameter") {
    take_hyperparameter(facts, line);
  } else if (line.word() == "random") {
    facts.rng = take_random(line);
  } else {
    line.fail_with(fmt::format("'{}' is no part of a program", line.word()));
  }
  line.end();
}

}  // namespace

std::string print(const ProgramFacts& facts) {
  Text text;
  add_options(text, facts.options);
  add_states(text, facts);
  for (const SavedNumber& number : facts.hyperparameters) {
    text.add("hyperparameter", {{"name", number.name}, {"value", number.value}});
  }
  if (facts.rng) {
    text.add("random", {{"seed", std::bit_cast<int64_t>(facts.rng->seed)},
                        {"step", std::bit_cast<int64_t>(facts.rng->step)}});
  }
  return text.take();
}

ProgramFacts parse_program_facts(std::string_view text) {
  ProgramFacts facts;
  facts.options.target.level = CpuLevel::portable;
  read_attribute_lines(text, "the program", {},
                       [&](AttributeLine& line) { add_line(facts, line); });
  return facts;
}

}  // namespace tessera
