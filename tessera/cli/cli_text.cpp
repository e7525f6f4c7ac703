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

std::string shown(std::string_view text) {
  constexpr size_t most = 100;
  std::string line(text.substr(0, most));
  std::replace_if(
      line.begin(), line.end(), [](unsigned char c) { return c < ' ' || c == 0x7f; }, ' ');
  return text.size() > most ? fmt::format("{}... ({} characters)", line, text.size()) : line;
}

}  // namespace tessera
