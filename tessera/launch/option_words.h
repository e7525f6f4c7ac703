// The command line of poprun as it stands there: which options were given with which text, and
// where the program begins. What the texts mean is not asked here.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tessera {

struct GivenOption {
  std::string name;  // as in the table, without dashes
  std::string text;  // of its value; empty for an option that takes none

  bool operator==(const GivenOption&) const = default;
};

struct OptionWords {
  std::vector<GivenOption> given;
  std::vector<std::string> program;  // and its arguments, which nobody looks at

  bool has(std::string_view name) const;
  // The one that was given last; empty where none was.
  std::string last(std::string_view name) const;
};

// `arguments` is without the name of poprun. The first word that is no option is the program; so
// is the one after `--`. Error where there is no such option, or its value is missing.
OptionWords read_option_words(const std::vector<std::string>& arguments);

}  // namespace tessera
