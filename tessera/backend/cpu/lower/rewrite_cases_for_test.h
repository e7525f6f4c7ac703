// Rewrites of graphs as texts, in files of the folder testdata: cases stand between lines `//
// ====`; what a graph must become follows a line `// ----`, without one it must stay as it is.
// Attributes with their default values may be left out.
#pragma once

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "tessera/ir/text.h"
#include "tessera/ops/builder.h"
#include "tessera/ops/registry.h"

namespace tessera::cpu {

struct RewriteCase {
  std::string name;  // the first line
  Graph before, after;
};

inline std::vector<std::string> split_at_lines(const std::string& text,
                                               const std::string& separator) {
  std::vector<std::string> parts(1);
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line == separator) {
      parts.emplace_back();
    } else {
      parts.back() += line + '\n';
    }
  }
  return parts;
}

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
  const auto path =
      std::filesystem::path(TESSERA_SOURCE_DIR) / "tessera/backend/cpu/lower/testdata" / file;
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  std::vector<RewriteCase> cases;
  for (const std::string& one : split_at_lines(text.str(), "// ====")) {
    const auto parts = split_at_lines(one, "// ----");
    cases.push_back(
        {one.substr(0, one.find('\n')), read_graph_text(parts[0]), read_graph_text(parts.back())});
  }
  return cases;
}

}  // namespace tessera::cpu
