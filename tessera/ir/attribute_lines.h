// Texts of which each line is a word and attributes in braces: `input {name = "x", dtype = f32}`.
// They may come from anywhere: every attribute that is asked for must be there, and no other may.
#pragma once

#include <algorithm>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "tessera/base/shape.h"
#include "tessera/ir/attributes.h"

namespace tessera {

// How the values of an enumeration are spelled.
template <typename Enum>
using Words = std::span<const std::pair<std::string_view, Enum>>;

template <typename Enum>
std::string word_for(Words<Enum> words, Enum value) {
  const auto at = std::find_if(words.begin(), words.end(),
                               [&](const auto& word) { return word.second == value; });
  return std::string(at->first);
}

class AttributeLine {
 public:
  // Line `number` of `whole` ("the signature"), for messages.
  AttributeLine(std::string_view text, int number, std::string_view whole,
                std::span<const Blob> blobs);

  std::string_view word() const { return word_; }
  bool has(std::string_view name) const { return attrs_.has(name); }

  template <typename T>
  T take(std::string_view name) {
    const Attr* found = attrs_.find(name);
    if (!found || !std::holds_alternative<T>(*found)) fail_missing(name);
    T value = std::get<T>(*found);
    attrs_.erase(name);
    return value;
  }

  size_t take_index(std::string_view name);   // not negative
  int64_t take_count(std::string_view name);  // at least one, and no more than an int holds
  TensorType take_type();                     // of the attributes `dtype` and `shape`

  template <typename Enum>
  Enum take_word(std::string_view name, Words<Enum> words) {
    const auto text = take<std::string>(name);
    for (const auto& [word, value] : words) {
      if (word == text) return value;
    }
    fail_unknown(name, text);
  }

  void end() const;  // Error where something was not asked for
  [[noreturn]] void fail_with(std::string_view what) const;

 private:
  [[noreturn]] void fail_missing(std::string_view name) const;
  [[noreturn]] void fail_unknown(std::string_view name, std::string_view text) const;

  int number_;
  std::string_view whole_, word_;
  Attrs attrs_;
};

// Calls `add` for each line that is not blank.
void read_attribute_lines(std::string_view text, std::string_view whole,
                          std::span<const Blob> blobs,
                          const std::function<void(AttributeLine&)>& add);

// What take_type() reads.
void set_type(Attrs& attrs, const TensorType& type);

}  // namespace tessera
