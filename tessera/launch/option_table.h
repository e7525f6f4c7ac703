// The options of poprun, a row each: what they are called, what they take, and what the help says.
// Command line, configuration files, checks and help are made from it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace tessera {

enum class OptionKind {
  flag,         // takes no value
  yes_or_no,    // given without a value it is yes
  number,       // a whole one
  seconds,      // a number, perhaps with a fraction
  text,         //
  text_or_none  // may be empty
};

enum class OptionGroup { start, hosts, output, mpi, files, accepted, general };

struct OptionRow {
  std::string_view name;  // without dashes
  char letter;            // a short form, or 0
  OptionKind kind;
  OptionGroup group;
  std::string_view value;  // how the help calls what it takes
  std::string_view help;
  int64_t least = 0, most = 0;  // of a number

  bool takes_value() const { return kind != OptionKind::flag; }
};

// In the order of the help.
std::span<const OptionRow> option_table();

// Null where there is none.
const OptionRow* find_option(std::string_view name);
const OptionRow* find_option(char letter);

// yes, no, true, false, 1, 0.
bool is_yes_or_no(std::string_view text);
bool is_yes(std::string_view text);

std::string help_text();

}  // namespace tessera
