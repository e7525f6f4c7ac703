// The text form of a graph. print() then parse() gives the same graph; parse() of a text that is
// not a graph is an Error with its line.
#pragma once

#include <string>
#include <string_view>

#include "tessera/ir/fused_body.h"
#include "tessera/ir/graph.h"

namespace tessera {

struct PrintOptions {
  bool origins = true;
  // Longer constants are shown by their size only; such a text does not parse back. 0: whole.
  size_t elide_blobs_over = 0;
};

std::string print(const Graph& graph, const PrintOptions& options = {});
Graph parse(std::string_view text);

// Attributes in braces, whole: what take_attributes() reads.
std::string print_attributes(const Attrs& attrs);

// The attributes in braces at the front of a text, which moves past them.
Attrs take_attributes(std::string_view& text);

// A fused body as it stands between its braces.
std::string print_body(const FusedBody& body);
FusedBody parse_body(std::string_view text);

// One node as print() writes it, for messages; values are called by their ids.
std::string print_node(const Graph& graph, const Node& node);
std::string print_attr(const Attr& attr);

}  // namespace tessera
