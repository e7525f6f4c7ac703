// The text form of a graph. print() then parse() gives the same graph; parse() of a text that is
// not a graph is an Error with its line.
//
// Constants stand in the text as hexadecimal digits, or, where it lies in a file beside them, by
// their number in a table: `bytes[3]`.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tessera/ir/fused_body.h"
#include "tessera/ir/graph.h"

namespace tessera {

// Constants that texts refer to by number. One that is used twice is there once.
class BlobTable {
 public:
  size_t number_of(const Blob& blob);
  const std::vector<Blob>& blobs() const { return blobs_; }

 private:
  std::vector<Blob> blobs_;
  std::unordered_map<const void*, size_t> numbers_;
};

struct PrintOptions {
  bool origins = true;
  // Longer constants are shown by their size only; such a text does not parse back. 0: whole.
  size_t elide_blobs_over = 0;
  BlobTable* blobs = nullptr;  // where constants go instead of into the text
};

std::string print(const Graph& graph, const PrintOptions& options = {});
// `blobs`: what the text refers to by number.
Graph parse(std::string_view text, std::span<const Blob> blobs = {});

// Attributes in braces, whole: what take_attributes() reads.
std::string print_attributes(const Attrs& attrs, BlobTable* blobs = nullptr);

// The attributes in braces at the front of a text, which moves past them.
Attrs take_attributes(std::string_view& text, std::span<const Blob> blobs = {});

// A fused body as it stands between its braces.
std::string print_body(const FusedBody& body);
FusedBody parse_body(std::string_view text);

// One node as print() writes it, for messages; values are called by their ids.
std::string print_node(const Graph& graph, const Node& node);
std::string print_attr(const Attr& attr);

}  // namespace tessera
