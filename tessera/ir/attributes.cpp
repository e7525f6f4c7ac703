#include "tessera/ir/attributes.h"

#include <algorithm>
#include <array>
#include <bit>

#include "tessera/base/error.h"
#include "tessera/ir/fused_body.h"

namespace tessera {
namespace {

auto position(std::vector<Attrs::Entry>& entries, std::string_view name) {
  return std::lower_bound(entries.begin(), entries.end(), name,
                          [](const Attrs::Entry& e, std::string_view n) { return e.first < n; });
}

bool same_bits(double a, double b) {
  return std::bit_cast<uint64_t>(a) == std::bit_cast<uint64_t>(b);
}

}  // namespace

AttrType type_of(const Attr& attr) { return static_cast<AttrType>(attr.index()); }

std::string_view name_of(AttrType type) {
  static constexpr std::array<std::string_view, attr_type_count> names = {
      "bool", "integer", "number", "text", "dtype", "integers", "numbers", "bytes", "body"};
  return names[static_cast<size_t>(type)];
}

bool equal(const Attr& a, const Attr& b) {
  if (a.index() != b.index()) return false;
  if (const auto* x = std::get_if<double>(&a)) return same_bits(*x, std::get<double>(b));
  if (const auto* x = std::get_if<std::vector<double>>(&a)) {
    const auto& y = std::get<std::vector<double>>(b);
    return std::equal(x->begin(), x->end(), y.begin(), y.end(), same_bits);
  }
  if (const auto* x = std::get_if<Blob>(&a)) {
    const auto& y = std::get<Blob>(b);
    return *x == y || **x == *y;
  }
  if (const auto* x = std::get_if<std::shared_ptr<const FusedBody>>(&a)) {
    const auto& y = std::get<std::shared_ptr<const FusedBody>>(b);
    return *x == y || **x == *y;
  }
  return a == b;
}

Attrs::Attrs(std::initializer_list<Entry> entries) {
  for (const auto& [name, value] : entries) set(name, value);
}

void Attrs::set(std::string_view name, Attr value) {
  const auto at = position(entries_, name);
  if (at != entries_.end() && at->first == name) {
    at->second = std::move(value);
  } else {
    entries_.emplace(at, name, std::move(value));
  }
}

void Attrs::erase(std::string_view name) {
  const auto at = position(entries_, name);
  if (at != entries_.end() && at->first == name) entries_.erase(at);
}

const Attr* Attrs::find(std::string_view name) const {
  const auto at = position(const_cast<std::vector<Entry>&>(entries_), name);
  return at != entries_.end() && at->first == name ? &at->second : nullptr;
}

template <typename T>
const T& Attrs::get(std::string_view name) const {
  const Attr* attr = find(name);
  TESSERA_INVARIANT(attr, "attribute '{}' is missing", name);
  const T* value = std::get_if<T>(attr);
  TESSERA_INVARIANT(value, "attribute '{}' is of type {}", name, name_of(type_of(*attr)));
  return *value;
}

bool Attrs::flag(std::string_view name) const { return get<bool>(name); }
int64_t Attrs::integer(std::string_view name) const { return get<int64_t>(name); }
double Attrs::number(std::string_view name) const { return get<double>(name); }
const std::string& Attrs::text(std::string_view name) const { return get<std::string>(name); }
DType Attrs::dtype(std::string_view name) const { return get<DType>(name); }
const Blob& Attrs::blob(std::string_view name) const { return get<Blob>(name); }
const FusedBody& Attrs::body(std::string_view name) const {
  return *get<std::shared_ptr<const FusedBody>>(name);
}
const std::vector<int64_t>& Attrs::integers(std::string_view name) const {
  return get<std::vector<int64_t>>(name);
}
const std::vector<double>& Attrs::numbers(std::string_view name) const {
  return get<std::vector<double>>(name);
}

bool Attrs::operator==(const Attrs& other) const {
  return std::equal(entries_.begin(), entries_.end(), other.entries_.begin(), other.entries_.end(),
                    [](const Entry& a, const Entry& b) {
                      return a.first == b.first && equal(a.second, b.second);
                    });
}

}  // namespace tessera
