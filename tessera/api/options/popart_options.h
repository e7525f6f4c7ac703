// Settings of PopART's session, by PopART's names. Most have no meaning on a CPU; they are kept,
// shown, and checked against the table of names when a model is compiled, as PopTorch does it.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tessera/api/options/option_value.h"

namespace tessera {

class PopartOptions {
 public:
  explicit PopartOptions(std::shared_ptr<bool> frozen);
  PopartOptions(const PopartOptions&) = delete;
  PopartOptions& operator=(const PopartOptions&) = delete;

  // Enumerations are given as their numbers.
  PopartOptions& set(std::string_view key, OptionValue value);
  PopartOptions& setEngineOptions(const std::map<std::string, std::string>& options);
  // Level 0 to 3: no patterns, the least, the default, all.
  PopartOptions& setPatterns(const std::map<std::string, bool>& patterns, int64_t level = 2);

  const OptionValue* find(std::string_view key) const;
  // A value of that type, or `otherwise`.
  template <typename T>
  T get(std::string_view key, T otherwise) const {
    const OptionValue* value = find(key);
    return value && value->is<T>() ? value->as<T>() : otherwise;
  }
  const OptionDict& options() const { return options_; }

  // Fails for a key that PopART does not have, or has with another type. Called at compile.
  void check() const;

  bool frozen() const { return *frozen_; }
  void check_changeable() const;

  void copy_values(const PopartOptions& other);
  void restore(OptionDict options) { options_ = std::move(options); }
  std::string to_string() const;
  bool operator==(const PopartOptions& other) const { return options_ == other.options_; }

 private:
  OptionDict options_;
  std::shared_ptr<bool> frozen_;
};

// Fails where PopART has no setting of this name and type.
void check_popart_option(std::string_view key, const OptionValue& value);

// Every key that is accepted, with its type in Python's words: for documents and tests.
std::vector<std::pair<std::string_view, std::string_view>> popart_option_keys();

// One line for a setting, in PopTorch's words, at level debug.
void log_option(std::string_view key, const OptionValue& value);

}  // namespace tessera
