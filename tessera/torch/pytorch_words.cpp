#include "tessera/torch/pytorch_words.h"

#include "tessera/torch/aten_facts.h"
#include "tessera/torch/compat.h"

namespace tessera {
namespace {

enum class Meaning { no_memory, wrong_types, meta_rule, kernels_own_rule, no_rule, cpp_file };

struct Words {
  Meaning meaning;
  std::string_view text;
  TorchVersions versions = {};
};

constexpr Words table[] = {
    {Meaning::no_memory, "data is not allocated yet"},

    {Meaning::wrong_types, "not implemented for"},
    {Meaning::wrong_types, "Found dtype"},
    {Meaning::wrong_types, "without overflow"},
    {Meaning::wrong_types, "expected scalar type"},
    {Meaning::wrong_types, "Expected a long tensor"},
    {Meaning::wrong_types, "can't be cast"},
    {Meaning::wrong_types, "same scalar type"},
    {Meaning::wrong_types, "same dtype"},
    {Meaning::wrong_types, "dtype is wrong"},
    {Meaning::wrong_types, "dtype of out"},
    {Meaning::wrong_types, "with a bool tensor is not supported"},
    {Meaning::wrong_types, "Integers to negative integer powers"},

    {Meaning::meta_rule, "\nMeta: registered at "},
    {Meaning::kernels_own_rule, "RegisterMeta.cpp", {.last = 206}},
    {Meaning::kernels_own_rule, "RegisterMeta_", {.first = 207}},
    {Meaning::no_rule, "MetaFallbackKernel.cpp", {.first = 200}},
    {Meaning::cpp_file, ".cpp"},
};

// The first text of that meaning in the message; empty where there is none.
std::string_view words_in(std::string_view message, Meaning meaning) {
  for (const Words& words : table) {
    if (words.meaning != meaning || !words.versions.include(compat::torch_version)) continue;
    const size_t at = message.find(words.text);
    if (at != std::string_view::npos) return message.substr(at, words.text.size());
  }
  return {};
}

}  // namespace

bool says_no_memory(std::string_view message) {
  return !words_in(message, Meaning::no_memory).empty();
}

bool says_wrong_types(std::string_view message) {
  return !words_in(message, Meaning::wrong_types).empty();
}

std::string_view place_of_meta_rule(std::string_view computed_table) {
  const std::string_view words = words_in(computed_table, Meaning::meta_rule);
  if (words.empty()) return {};
  const std::string_view rest(words.end(), computed_table.end());
  return rest.substr(0, rest.find('\n'));
}

bool is_kernels_own_rule(std::string_view place) {
  return !words_in(place, Meaning::kernels_own_rule).empty();
}

bool is_rule_that_throws(std::string_view place) {
  return !words_in(place, Meaning::no_rule).empty();
}

bool is_rule_in_cpp(std::string_view place) { return !words_in(place, Meaning::cpp_file).empty(); }

}  // namespace tessera
