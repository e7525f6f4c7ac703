#include "tessera/base/error_log.h"

#include <fmt/format.h>

#include <algorithm>
#include <mutex>

#include "tessera/base/replace_file.h"

namespace tessera {
namespace {

constexpr int64_t most_lines = 80;
constexpr int64_t lines_kept = 10;

struct Folder {
  std::mutex mutex;
  std::string name = ".";
};

Folder& folder() {
  static auto* instance = new Folder;  // errors may come while the process ends
  return *instance;
}

std::string first_lines(const std::string& text, int64_t count) {
  size_t end = 0;
  for (int64_t i = 0; i < count; ++i) end = text.find('\n', end) + 1;
  return text.substr(0, end);
}

}  // namespace

void set_error_log_folder(std::string name) {
  Folder& where = folder();
  const std::lock_guard lock(where.mutex);
  where.name = name.empty() ? "." : std::move(name);
}

std::string shortened_error(const std::string& message) {
  const int64_t lines = std::count(message.begin(), message.end(), '\n') + 1;
  if (lines <= most_lines) return message;
  std::string path;
  {
    Folder& where = folder();
    const std::lock_guard lock(where.mutex);
    path = where.name + "/poptorch_error.log";
  }
  if (!replace_file(path, message + "\n")) return message;
  return fmt::format("{}... {} more lines: the whole message is in '{}'",
                     first_lines(message, lines_kept), lines - lines_kept, path);
}

}  // namespace tessera
