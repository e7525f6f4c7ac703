// A set of options that belong together, as a table: a row names an option, its type, what it is
// until somebody sets it, and its rule. Reading by name, printing, comparing, copying and pickling
// follow from the table, so that a new option is one row and a setter.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tessera/api/options/option_value.h"
#include "tessera/base/error.h"

namespace tessera {

enum class OptionKind { flag, integer, text, list, dict, choice };

struct OptionField {
  std::string_view name;  // as programs read it: device_iterations
  OptionKind kind;
  std::optional<OptionValue> initial = {};  // unset, and unknown to exists(), where empty
  // Throws where a value of the right type is still wrong.
  void (*rule)(std::string_view name, const OptionValue& value) = nullptr;
  std::string_view choices = {};  // which enumeration a choice is from
  bool may_be_none = false;
  ErrorKind wrong_type = ErrorKind::assertion;
};

// Rules that several options have.
void at_least_one(std::string_view name, const OptionValue& value);
void not_negative(std::string_view name, const OptionValue& value);

class OptionGroup {
 public:
  OptionGroup(std::string_view name, std::span<const OptionField> fields,
              std::shared_ptr<bool> frozen);
  OptionGroup(const OptionGroup&) = delete;
  OptionGroup& operator=(const OptionGroup&) = delete;

  std::string_view name() const { return name_; }
  std::span<const OptionField> fields() const { return fields_; }

  bool exists(std::string_view option) const;  // known, and set
  const OptionValue& get(std::string_view option) const;
  void set(std::string_view option, OptionValue value);
  void clear(std::string_view option);  // back to unset

  std::vector<std::pair<std::string_view, OptionValue>> values() const;  // those that are set
  void copy_values(const OptionGroup& other);
  // Values that were read from values(): no rule is asked, and nothing happens but this.
  void restore(std::string_view option, OptionValue value);

  bool frozen() const { return *frozen_; }
  void check_changeable() const;

  // name(option=value, ...)
  std::string to_string() const;
  bool operator==(const OptionGroup& other) const { return values_ == other.values_; }

 protected:
  ~OptionGroup() = default;

  // Typed reading of an option of that type, which is set.
  bool flag(std::string_view option) const { return get(option).as<bool>(); }
  int64_t integer(std::string_view option) const { return get(option).as<int64_t>(); }
  const std::string& text(std::string_view option) const { return get(option).as<std::string>(); }
  template <typename Choice>
  Choice choice(std::string_view option) const {
    return static_cast<Choice>(get(option).as<OptionEnum>().number);
  }
  template <typename T>
  std::optional<T> if_set(std::string_view option) const {
    if (!exists(option) || get(option).is<OptionNone>()) return std::nullopt;
    return get(option).as<T>();
  }

  // Changes a value although the options are frozen.
  OptionValue& value(std::string_view option);
  const std::shared_ptr<bool>& frozen_flag() const { return frozen_; }

 private:
  const OptionField* find(std::string_view option) const;
  const OptionField& known(std::string_view option) const;
  size_t index(const OptionField& field) const;

  std::string_view name_;
  std::span<const OptionField> fields_;
  std::vector<std::optional<OptionValue>> values_;  // in the order of fields_
  std::shared_ptr<bool> frozen_;                    // shared by all groups of one Options
};

}  // namespace tessera
