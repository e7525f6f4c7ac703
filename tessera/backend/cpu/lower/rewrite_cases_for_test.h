// Rewrites of graphs as texts, in files of the folder testdata: cases stand between lines `//
// ====`; what a graph must become follows a line `// ----`, without one it must stay as it is.
// Attributes with their default values may be left out.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "tessera/base/checkout_for_test.h"
#include "tessera/base/text_files_for_test.h"
#include "tessera/ir/text.h"
#include "tessera/ops/builder.h"
#include "tessera/ops/registry.h"

namespace tessera::cpu {

struct RewriteCase {
  std::string name;  // the first line
  Graph before, after;
};

inline Graph read_graph_text(const std::string& text) {
  Graph graph = parse(text);
  for (int32_t i = 0; i < graph.node_count(); ++i) {
    Node& node = graph.node({i});
    node.attrs = completed(op(node), node.attrs);
  }
  verify(graph);
  return graph;
}

inline std::vector<RewriteCase> rewrite_cases(const std::string& file) {
  const auto path = source_folder() / "tessera/backend/cpu/lower/testdata" / file;
  std::vector<RewriteCase> cases;
  for (const std::string& one : split_at_lines(text_of_file(path), "// ====")) {
    const auto parts = split_at_lines(one, "// ----");
    cases.push_back(
        {one.substr(0, one.find('\n')), read_graph_text(parts[0]), read_graph_text(parts.back())});
  }
  return cases;
}

}  // namespace tessera::cpu
