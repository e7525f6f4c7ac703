// Named constants of a node: kernel sizes, dimensions, flags. Kept sorted by name, so that equal
// attributes print equally.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "tessera/base/dtype.h"

namespace tessera {

using Blob = std::shared_ptr<const std::vector<std::byte>>;  // shared: constants are never changed
struct FusedBody;                                            // ir/fused_body.h
using Attr = std::variant<bool, int64_t, double, std::string, DType, std::vector<int64_t>,
                          std::vector<double>, Blob, std::shared_ptr<const FusedBody>>;

enum class AttrType { boolean, integer, number, text, dtype, integers, numbers, blob, body };
constexpr int attr_type_count = 9;

AttrType type_of(const Attr& attr);
std::string_view name_of(AttrType type);
bool equal(const Attr& a, const Attr& b);  // blobs and bodies by content, numbers by bits

class Attrs {
 public:
  using Entry = std::pair<std::string, Attr>;

  Attrs() = default;
  Attrs(std::initializer_list<Entry> entries);

  void set(std::string_view name, Attr value);
  void erase(std::string_view name);
  const Attr* find(std::string_view name) const;
  bool has(std::string_view name) const { return find(name) != nullptr; }

  // The attribute of that name and type; InternalError where it is missing: rows declare theirs.
  bool flag(std::string_view name) const;
  int64_t integer(std::string_view name) const;
  double number(std::string_view name) const;
  const std::string& text(std::string_view name) const;
  DType dtype(std::string_view name) const;
  const std::vector<int64_t>& integers(std::string_view name) const;
  const std::vector<double>& numbers(std::string_view name) const;
  const Blob& blob(std::string_view name) const;
  const FusedBody& body(std::string_view name) const;

  bool empty() const { return entries_.empty(); }
  auto begin() const { return entries_.begin(); }
  auto end() const { return entries_.end(); }
  bool operator==(const Attrs& other) const;

 private:
  template <typename T>
  const T& get(std::string_view name) const;

  std::vector<Entry> entries_;
};

}  // namespace tessera
