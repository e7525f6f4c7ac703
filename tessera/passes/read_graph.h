// Reads a graph from text that may come from anywhere. Beyond parse(), every node must be a use of
// a row of the operator table that its rule accepts; attributes that are left out get their
// defaults. Error otherwise.
//
// Such a graph may be run: it calls no operator of PyTorch that is not known to be safe whatever
// its arguments are. A tool that only looks at a graph takes any_host_call.
#pragma once

#include <span>
#include <string_view>

#include "tessera/ir/graph.h"

namespace tessera {

enum class FromFile { safe_host_calls, any_host_call };

// `blobs`: the constants that the text refers to by number.
Graph read_graph(std::string_view text, FromFile limit = FromFile::safe_host_calls,
                 std::span<const Blob> blobs = {});

}  // namespace tessera
