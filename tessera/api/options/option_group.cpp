#include "tessera/api/options/option_group.h"

#include <fmt/ranges.h>

#include "tessera/api/spoken.h"

namespace tessera {
namespace {

std::string wanted(const OptionField& field) {
  std::string text;
  switch (field.kind) {
    case OptionKind::flag:
      text = "a bool";
      break;
    case OptionKind::integer:
      text = "an int";
      break;
    case OptionKind::text:
      text = "a str";
      break;
    case OptionKind::list:
      text = "a list";
      break;
    case OptionKind::dict:
      text = "a dict";
      break;
    case OptionKind::choice:
      text = fmt::format("a member of poptorch.{}", field.choices);
      break;
  }
  return field.may_be_none ? text + " or None" : text;
}

bool fits(const OptionField& field, const OptionValue& value) {
  if (value.is<OptionNone>()) return field.may_be_none;
  switch (field.kind) {
    case OptionKind::flag:
      return value.is<bool>();
    case OptionKind::integer:
      return value.is<int64_t>();
    case OptionKind::text:
      return value.is<std::string>();
    case OptionKind::list:
      return value.is<OptionList>();
    case OptionKind::dict:
      return value.is<OptionDict>();
    case OptionKind::choice:
      return value.is<OptionEnum>() && value.as<OptionEnum>().type == field.choices;
  }
  return false;
}

}  // namespace

void at_least_one(std::string_view name, const OptionValue& value) {
  check(value.as<int64_t>() >= 1, ErrorKind::value, "{} must be at least 1, got {}", name,
        value.as<int64_t>());
}

void not_negative(std::string_view name, const OptionValue& value) {
  check(value.as<int64_t>() >= 0, ErrorKind::value, "{} must not be negative, got {}", name,
        value.as<int64_t>());
}

OptionGroup::OptionGroup(std::string_view name, std::span<const OptionField> fields,
                         std::shared_ptr<bool> frozen)
    : name_(name), fields_(fields), frozen_(std::move(frozen)) {
  for (const OptionField& field : fields_) values_.push_back(field.initial);
}

const OptionField* OptionGroup::find(std::string_view option) const {
  for (const OptionField& field : fields_) {
    if (field.name == option) return &field;
  }
  return nullptr;
}

const OptionField& OptionGroup::known(std::string_view option) const {
  const OptionField* field = find(option);
  if (field) return *field;
  std::vector<std::string_view> names;
  for (const OptionField& other : fields_) names.push_back(other.name);
  fail(ErrorKind::assertion, "{} has no option '{}'; it has {}", name_, option,
       names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", ")));
}

size_t OptionGroup::index(const OptionField& field) const {
  return static_cast<size_t>(&field - fields_.data());
}

bool OptionGroup::exists(std::string_view option) const {
  const OptionField* field = find(option);
  return field && values_[index(*field)].has_value();
}

const OptionValue& OptionGroup::get(std::string_view option) const {
  const OptionField* field = find(option);
  check(field, ErrorKind::attribute, "{} has no option '{}'", name_, option);
  const auto& value = values_[index(*field)];
  check(value.has_value(), ErrorKind::attribute, "{} is not set; check exists(\"{}\") first",
        option, option);
  return *value;
}

OptionValue& OptionGroup::value(std::string_view option) {
  auto& value = values_[index(known(option))];
  TESSERA_INVARIANT(value.has_value(), "{} of {} is not set", option, name_);
  return *value;
}

void OptionGroup::check_changeable() const {
  check(!*frozen_, ErrorKind::attribute,
        "Can't modify frozen Options: they were given to a model or a data loader; change a "
        "clone() of them instead");
}

void OptionGroup::set(std::string_view option, OptionValue value) {
  check_changeable();
  const OptionField& field = known(option);
  check(fits(field, value), field.wrong_type, "{} must be {}, not {}", option, wanted(field),
        spoken_value(value));
  if (field.rule && !value.is<OptionNone>()) field.rule(option, value);
  values_[index(field)] = std::move(value);
}

void OptionGroup::clear(std::string_view option) {
  check_changeable();
  if (const OptionField* field = find(option)) values_[index(*field)].reset();
}

std::vector<std::pair<std::string_view, OptionValue>> OptionGroup::values() const {
  std::vector<std::pair<std::string_view, OptionValue>> set;
  for (const OptionField& field : fields_) {
    if (const auto& value = values_[index(field)]) set.emplace_back(field.name, *value);
  }
  return set;
}

void OptionGroup::copy_values(const OptionGroup& other) {
  TESSERA_INVARIANT(fields_.data() == other.fields_.data(), "{} is no {}", other.name_, name_);
  check_changeable();
  values_ = other.values_;
}

void OptionGroup::restore(std::string_view option, OptionValue value) {
  values_[index(known(option))] = std::move(value);
}

std::string OptionGroup::to_string() const {
  std::string text;
  for (const auto& [option, value] : values()) {
    if (!text.empty()) text += ", ";
    text += fmt::format("{}={}", option, tessera::to_string(value));
  }
  return fmt::format("{}({})", name_, text);
}

}  // namespace tessera
