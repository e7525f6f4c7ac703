#include "tessera/launch/last_lines.h"

#include <algorithm>

namespace tessera {
namespace {

constexpr size_t most_lines = 40, most_bytes = 8192;

}  // namespace

void LastLines::add(std::string_view text) {
  kept_ += text;
  // Twice as much, so that not every line moves all of it.
  if (kept_.size() > 2 * most_bytes) kept_.erase(0, kept_.size() - most_bytes);
}

std::string LastLines::text() const {
  std::string_view rest = kept_;
  if (rest.size() > most_bytes) rest.remove_prefix(rest.size() - most_bytes);
  const bool is_cut = rest.size() >= most_bytes;
  if (const size_t end = rest.find('\n'); is_cut && end + 1 < rest.size()) {
    rest.remove_prefix(end + 1);
  }
  auto lines = static_cast<size_t>(std::count(rest.begin(), rest.end(), '\n'));
  if (!rest.empty() && rest.back() != '\n') ++lines;
  for (; lines > most_lines; --lines) rest.remove_prefix(rest.find('\n') + 1);
  return std::string(rest);
}

}  // namespace tessera
