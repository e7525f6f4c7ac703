// A value of an option: what a Python program can write as a literal, and a named choice.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace tessera {

struct OptionValue;
struct OptionEntry;

struct OptionNone {
  bool operator==(const OptionNone&) const = default;
};

// A member of one of PopTorch's enumerations: its name and the member's number.
struct OptionEnum {
  std::string type;
  int64_t number = 0;
  bool operator==(const OptionEnum&) const = default;
};

struct OptionList {
  std::vector<OptionValue> items;
  bool operator==(const OptionList&) const;
};

struct OptionSet {
  std::vector<OptionValue> items;
  bool operator==(const OptionSet&) const;
};

// Keys in the order in which they came.
struct OptionDict {
  std::vector<OptionEntry> entries;

  const OptionValue* find(const OptionValue& key) const;
  void set(OptionValue key, OptionValue value);
  bool operator==(const OptionDict&) const;
};

// Something that no option takes; kept so that the error can come where PopTorch has it.
struct OptionUnknown {
  std::string type;
  bool operator==(const OptionUnknown&) const = default;
};

struct OptionValue {
  std::variant<OptionNone, bool, int64_t, double, std::string, OptionEnum, OptionList, OptionSet,
               OptionDict, OptionUnknown>
      data;

  OptionValue() = default;
  OptionValue(bool value) : data(value) {}
  OptionValue(int value) : data(int64_t{value}) {}
  OptionValue(int64_t value) : data(value) {}
  OptionValue(double value) : data(value) {}
  OptionValue(const char* value) : data(std::string(value)) {}
  OptionValue(std::string value) : data(std::move(value)) {}
  OptionValue(OptionEnum value) : data(std::move(value)) {}
  OptionValue(OptionList value) : data(std::move(value)) {}
  OptionValue(OptionSet value) : data(std::move(value)) {}
  OptionValue(OptionDict value) : data(std::move(value)) {}
  OptionValue(OptionUnknown value) : data(std::move(value)) {}
  OptionValue(const std::vector<std::string>& texts);

  template <typename T>
  bool is() const {
    return std::holds_alternative<T>(data);
  }
  template <typename T>
  const T& as() const {
    return std::get<T>(data);
  }
  template <typename T>
  T& as() {
    return std::get<T>(data);
  }

  bool operator==(const OptionValue&) const = default;
};

struct OptionEntry {
  OptionValue key, value;
  bool operator==(const OptionEntry&) const = default;
};

// Python's name of the type: "int", "dict".
std::string_view type_name(const OptionValue& value);

// As logs show it: true, 3, half, [a, b], {k: v}. A member of an enumeration is its number.
std::string to_string(const OptionValue& value);

std::vector<std::string> texts_of(const OptionList& list);

}  // namespace tessera
