#include "tessera/api/options/option_value.h"

#include <fmt/format.h>

namespace tessera {
namespace {

template <typename... Cases>
struct Overloaded : Cases... {
  using Cases::operator()...;
};

std::string joined(const std::vector<OptionValue>& items) {
  std::string text;
  for (const OptionValue& item : items) {
    if (!text.empty()) text += ", ";
    text += to_string(item);
  }
  return text;
}

}  // namespace

bool OptionList::operator==(const OptionList& other) const = default;
bool OptionSet::operator==(const OptionSet& other) const = default;
bool OptionDict::operator==(const OptionDict& other) const = default;

OptionValue::OptionValue(const std::vector<std::string>& texts) {
  OptionList list;
  for (const std::string& text : texts) list.items.emplace_back(text);
  data = std::move(list);
}

const OptionValue* OptionDict::find(const OptionValue& key) const {
  for (const OptionEntry& entry : entries) {
    if (entry.key == key) return &entry.value;
  }
  return nullptr;
}

void OptionDict::set(OptionValue key, OptionValue value) {
  for (OptionEntry& entry : entries) {
    if (entry.key != key) continue;
    entry.value = std::move(value);
    return;
  }
  entries.push_back({std::move(key), std::move(value)});
}

std::string_view type_name(const OptionValue& value) {
  return std::visit(
      Overloaded{[](const OptionNone&) -> std::string_view { return "None"; },
                 [](bool) -> std::string_view { return "bool"; },
                 [](int64_t) -> std::string_view { return "int"; },
                 [](double) -> std::string_view { return "float"; },
                 [](const std::string&) -> std::string_view { return "str"; },
                 [](const OptionEnum& member) -> std::string_view { return member.type; },
                 [](const OptionList&) -> std::string_view { return "list"; },
                 [](const OptionSet&) -> std::string_view { return "set"; },
                 [](const OptionDict&) -> std::string_view { return "dict"; },
                 [](const OptionUnknown& unknown) -> std::string_view { return unknown.type; }},
      value.data);
}

std::string to_string(const OptionValue& value) {
  return std::visit(
      Overloaded{[](const OptionNone&) { return std::string("None"); },
                 [](bool flag) { return std::string(flag ? "true" : "false"); },
                 [](int64_t number) { return fmt::format("{}", number); },
                 [](double number) { return fmt::format("{}", number); },
                 [](const std::string& text) { return text; },
                 [](const OptionEnum& member) { return fmt::format("{}", member.number); },
                 [](const OptionList& list) { return fmt::format("[{}]", joined(list.items)); },
                 [](const OptionSet& set) { return fmt::format("{{{}}}", joined(set.items)); },
                 [](const OptionDict& dict) {
                   std::string text;
                   for (const OptionEntry& entry : dict.entries) {
                     if (!text.empty()) text += ", ";
                     text += to_string(entry.key) + ": " + to_string(entry.value);
                   }
                   return "{" + text + "}";
                 },
                 [](const OptionUnknown& unknown) { return "<" + unknown.type + ">"; }},
      value.data);
}

std::vector<std::string> texts_of(const OptionList& list) {
  std::vector<std::string> texts;
  for (const OptionValue& item : list.items) texts.push_back(to_string(item));
  return texts;
}

}  // namespace tessera
