#include "tessera/cli/ops_table.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <vector>

#include "tessera/backend/cpu/kernels/table.h"
#include "tessera/base/error.h"
#include "tessera/ir/text.h"
#include "tessera/ops/registry.h"

namespace tessera {
namespace {

using Line = std::array<std::string, 5>;
const Line header = {"name", "signature", "kind", "what it computes", "ATen"};

std::string attr_names(const OpDef& op) {
  std::vector<std::string> names;
  for (const AttrSpec& attr : op.attrs) {
    if (attr.fallback) {
      names.push_back(fmt::format("{} = {}", attr.name, print_attr(*attr.fallback)));
    } else {
      names.push_back(attr.name + (attr.optional ? "?" : ""));
    }
  }
  return names.empty() ? "" : fmt::format(" {{{}}}", fmt::join(names, ", "));
}

std::string signature(const OpDef& op) {
  return fmt::format("({}){} -> {}", op.operands, attr_names(op), op.results);
}

Line line_of(const OpDef& op) {
  std::vector<std::string_view> overloads;
  for (const AtenSpelling& spelling : op.aten) overloads.push_back(spelling.overload);
  return {op.name, signature(op), std::string(name_of(op.kind)), op.doc,
          fmt::format("{}", fmt::join(overloads, ", "))};
}

std::vector<Line> all_lines() {
  std::vector<Line> lines;
  for (const OpDef* op : all_ops()) lines.push_back(line_of(*op));
  return lines;
}

std::string_view text_of(cpu::EpilogueKind epilogue) {
  switch (epilogue) {
    case cpu::EpilogueKind::none:
      return "";
    case cpu::EpilogueKind::narrow:
    case cpu::EpilogueKind::in_rooms:
      return "; goes on with steps that read little else";
    case cpu::EpilogueKind::any:
      return "; goes on with steps";
    case cpu::EpilogueKind::in_registers:
      return "; does the steps in registers";
  }
  return "";
}

// What has to be so for a kernel to be taken, as far as it can be said without a use.
std::string requirements(const cpu::KernelEntry& entry) {
  return fmt::format("{}{}; {}{}", name_of(entry.needs),
                     entry.uses_whole_machine ? " and all that the machine has" : "",
                     entry.wants     ? "chooses layouts"
                     : entry.follows ? "follows its neighbours' layouts"
                                     : "plain layouts",
                     text_of(entry.epilogue));
}

std::string kernels_of(const OpDef& op) {
  const auto entries = cpu::all_entries(op.name);
  if (entries.empty()) return "  kernel: reference\n";
  std::string out = "  kernels, of which the first that applies is taken:\n";
  for (const cpu::KernelEntry* entry : entries) {
    out += fmt::format("    {:<28}{}\n", entry->name, requirements(*entry));
  }
  return out + fmt::format("    {:<28}{}\n", "reference", "any use");
}

std::string escaped_for_markdown(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '|' || c == '*' || c == '_' || c == '<') out += '\\';
    out += c;
  }
  return out;
}

std::string markdown_row(const Line& line) {
  return fmt::format("| `{}` | `{}` | {} | {} | {} |\n", line[0], line[1], line[2],
                     escaped_for_markdown(line[3]), escaped_for_markdown(line[4]));
}

}  // namespace

std::string ops_as_text() {
  std::vector<Line> lines = all_lines();
  lines.insert(lines.begin(), header);
  std::array<size_t, 5> widths{};
  // A few very long signatures must not push the columns after them off the screen.
  constexpr size_t widest = 60;
  for (const Line& line : lines) {
    for (size_t i = 0; i < line.size(); ++i) {
      if (line[i].size() <= widest) widths[i] = std::max(widths[i], line[i].size());
    }
  }
  std::string out;
  for (const Line& line : lines) {
    std::string row;
    for (size_t i = 0; i < line.size(); ++i) row += fmt::format("{:<{}}  ", line[i], widths[i]);
    row.erase(row.find_last_not_of(' ') + 1);
    out += row + '\n';
  }
  return out;
}

std::string ops_as_markdown() {
  std::string out = fmt::format("| {} |\n|---|---|---|---|---|\n", fmt::join(header, " | "));
  for (const Line& line : all_lines()) out += markdown_row(line);
  return out;
}

std::string describe_op(std::string_view name) {
  const OpDef* op = find_op(name);
  if (!op) op = find_aten(name).op;
  check(op, ErrorKind::value, "there is no operator '{}'; `tessera ops` lists those there are",
        name);
  std::string out =
      fmt::format("{}{}\n  {}\n  kind: {}\n", op->name, signature(*op), op->doc, name_of(op->kind));
  for (const AttrSpec& attr : op->attrs) {
    out += fmt::format("  attribute {}: {}", attr.name, name_of(attr.type));
    if (attr.fallback) out += fmt::format(", {} unless given", print_attr(*attr.fallback));
    if (!attr.fallback && attr.optional) out += ", may be left out";
    out += '\n';
  }
  for (const AtenSpelling& spelling : op->aten) {
    out += fmt::format("  ATen: {}({})\n", spelling.overload, spelling.arguments);
  }
  if (op->decompose) out += "  may be taken apart into other operators\n";
  if (op->cpu) out += kernels_of(*op);
  return out;
}

}  // namespace tessera
