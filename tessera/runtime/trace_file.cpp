#include "tessera/runtime/trace_file.h"

#include <fmt/format.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "tessera/base/error.h"
#include "tessera/base/log.h"
#include "tessera/base/replace_file.h"

namespace tessera {
namespace {

constexpr int64_t steps_recorded = 16;

std::string numbered(const std::string& path) {
  static std::atomic<int> files{0};
  const int number = ++files;
  if (number == 1) return path;
  const std::filesystem::path whole(path);
  std::filesystem::path name = whole.stem();
  name += fmt::format(".{}", number);
  name += whole.extension();
  return (whole.parent_path() / name).string();
}

}  // namespace

TraceFile::TraceFile(const std::string& path, const cpu::Plan& plan, int threads)
    : path_(numbered(path)), timeline_(plan, threads, steps_recorded) {}

TraceFile::~TraceFile() {
  try {
    write_trace(path_, timeline_);
    log(LogLevel::info, "wrote the timeline of the first steps to '{}'", path_);
  } catch (const std::exception& error) {
    log(LogLevel::warn, "{}", error.what());
  }
}

void write_trace(const std::string& path, const cpu::Timeline& timeline) {
  const bool written = replace_file(path, timeline.to_json());  // before errno is looked at
  check(written, ErrorKind::value, "cannot write the timeline to '{}': {}", path,
        std::strerror(errno));
}

}  // namespace tessera
