#include "tessera/cli/cli_text.h"

#include <algorithm>

namespace tessera {

std::string one_line(const Error& error) {
  if (error.context().empty()) return error.message();
  return fmt::format("{} (in {})", error.message(), error.context().front());
}

std::string one_sentence(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text.substr(0, text.find_last_not_of(" .") + 1);
}

}  // namespace tessera
