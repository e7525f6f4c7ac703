#include "tessera/files/source_lines.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>

namespace tessera {

std::string print_lines(const std::vector<SourceLine>& lines) {
  std::string text;
  for (const auto& [file, line] : lines) text += fmt::format("{} {}\n", line, file);
  return text;
}

std::vector<SourceLine> parse_lines(std::string_view text) {
  std::vector<SourceLine> lines;
  while (!text.empty()) {
    const std::string_view row = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), row.size() + 1));
    const char* const row_end = row.data() + row.size();
    SourceLine line;
    const auto [end, error] = std::from_chars(row.data(), row_end, line.line);
    if (error != std::errc() || end == row_end) break;
    line.file = std::string(end + 1, row_end);
    lines.push_back(std::move(line));
  }
  return lines;
}

void move_lines(Graph& graph, const std::vector<SourceLine>& before,
                const std::vector<SourceLine>& today) {
  if (before == today || before.size() != today.size()) return;
  std::map<SourceLine, const SourceLine*> moved;
  for (size_t i = 0; i < today.size(); ++i) moved[before[i]] = &today[i];
  for (int32_t i = 0; i < graph.node_count(); ++i) {
    Origin& origin = graph.node(NodeId{i}).origin;
    const auto at = moved.find({origin.file, origin.line});
    if (at == moved.end()) continue;
    origin.file = at->second->file;
    origin.line = at->second->line;
  }
}

}  // namespace tessera
