// What a C++ forward returns as a flat list of tensors, and back: tensors in tuples, pairs,
// vectors, arrays, maps and optionals, nested as you like. Values of other types come back as
// captured. `describe` says how they are nested, as StepSignature::structure has it.
#pragma once

#include <ATen/core/Tensor.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace tessera::detail {

using TensorList = std::vector<at::Tensor>;
using NextTensor = TensorList::const_iterator;

// `rebuild` takes its tensors from `next`, and everything else from a value built alike.
template <typename T>
struct Structure {
  static void flatten(const T&, TensorList&) {}
  static T rebuild(const T& like, NextTensor&) { return like; }
  static std::string describe(const T& value) {
    if constexpr (std::is_same_v<T, bool>) return value ? "True" : "False";
    if constexpr (std::is_arithmetic_v<T>) return fmt::format("{}", value);
    return "<value>";
  }
};

template <>
struct Structure<at::Tensor> {
  static void flatten(const at::Tensor& value, TensorList& tensors) { tensors.push_back(value); }
  static at::Tensor rebuild(const at::Tensor&, NextTensor& next) { return *next++; }
  static std::string describe(const at::Tensor&) { return "<tensor>"; }
};

template <typename Tuple>
struct TupleStructure {
  static void flatten(const Tuple& value, TensorList& tensors) {
    std::apply(
        [&](const auto&... item) {
          (Structure<std::decay_t<decltype(item)>>::flatten(item, tensors), ...);
        },
        value);
  }
  static Tuple rebuild(const Tuple& like, NextTensor& next) {
    return std::apply(
        [&](const auto&... item) {
          // In braces the items are made from left to right.
          return Tuple{Structure<std::decay_t<decltype(item)>>::rebuild(item, next)...};
        },
        like);
  }
  static std::string describe(const Tuple& value) {
    std::vector<std::string> items;
    std::apply(
        [&](const auto&... item) {
          (items.push_back(Structure<std::decay_t<decltype(item)>>::describe(item)), ...);
        },
        value);
    return fmt::format("({}{})", fmt::join(items, ", "), items.size() == 1 ? "," : "");
  }
};
template <typename... T>
struct Structure<std::tuple<T...>> : TupleStructure<std::tuple<T...>> {};
template <typename A, typename B>
struct Structure<std::pair<A, B>> : TupleStructure<std::pair<A, B>> {};
template <typename T, size_t count>
struct Structure<std::array<T, count>> : TupleStructure<std::array<T, count>> {};

template <typename T>
struct Structure<std::vector<T>> {
  static void flatten(const std::vector<T>& value, TensorList& tensors) {
    for (const T& item : value) Structure<T>::flatten(item, tensors);
  }
  static std::vector<T> rebuild(const std::vector<T>& like, NextTensor& next) {
    std::vector<T> made;
    for (const T& item : like) made.push_back(Structure<T>::rebuild(item, next));
    return made;
  }
  static std::string describe(const std::vector<T>& value) {
    std::vector<std::string> items;
    for (const T& item : value) items.push_back(Structure<T>::describe(item));
    return fmt::format("[{}]", fmt::join(items, ", "));
  }
};

template <typename T>
struct Structure<std::optional<T>> {
  static void flatten(const std::optional<T>& value, TensorList& tensors) {
    if (value) Structure<T>::flatten(*value, tensors);
  }
  static std::optional<T> rebuild(const std::optional<T>& like, NextTensor& next) {
    if (!like) return std::nullopt;
    return Structure<T>::rebuild(*like, next);
  }
  static std::string describe(const std::optional<T>& value) {
    return value ? Structure<T>::describe(*value) : "None";
  }
};

template <typename Key, typename T>
struct Structure<std::map<Key, T>> {
  static void flatten(const std::map<Key, T>& value, TensorList& tensors) {
    for (const auto& [key, item] : value) Structure<T>::flatten(item, tensors);
  }
  static std::map<Key, T> rebuild(const std::map<Key, T>& like, NextTensor& next) {
    std::map<Key, T> made;
    for (const auto& [key, item] : like) made.emplace(key, Structure<T>::rebuild(item, next));
    return made;
  }
  static std::string describe(const std::map<Key, T>& value) {
    std::vector<std::string> items;
    for (const auto& [key, item] : value) {
      items.push_back(fmt::format("{}: {}", described_key(key), Structure<T>::describe(item)));
    }
    return fmt::format("{{{}}}", fmt::join(items, ", "));
  }
  static std::string described_key(const Key& key) {
    if constexpr (std::is_convertible_v<Key, std::string>) return fmt::format("'{}'", key);
    return Structure<Key>::describe(key);
  }
};

}  // namespace tessera::detail
