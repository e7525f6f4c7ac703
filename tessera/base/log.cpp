#include "tessera/base/log.h"

#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <limits>
#include <mutex>
#include <string>
#include <unordered_map>

#include "tessera/base/log_each.h"

namespace tessera {
namespace {

struct LevelName {
  std::string_view name, number;
  LogLevel level;
};

// The last two are PopTorch's own, between the others.
constexpr std::array<LevelName, 8> level_names = {{
    {"TRACE", "0", LogLevel::trace},
    {"DEBUG", "1", LogLevel::debug},
    {"INFO", "2", LogLevel::info},
    {"WARN", "3", LogLevel::warn},
    {"ERR", "4", LogLevel::error},
    {"OFF", "6", LogLevel::off},
    {"TRACE_ALL", "", LogLevel::trace},
    {"DEBUG_IR", "", LogLevel::debug},
}};

LogLevel level_from_environment() {
  const char* text = std::getenv("POPTORCH_LOG_LEVEL");
  if (!text || !*text) return LogLevel::warn;
  if (const auto level = log_level_named(text)) return *level;
  write_log(LogLevel::warn,
            fmt::format("POPTORCH_LOG_LEVEL is '{}', which is none of TRACE, DEBUG, "
                        "INFO, WARN, ERR and OFF; WARN is used",
                        text));
  return LogLevel::warn;
}

std::atomic<LogLevel>& level() {
  static std::atomic<LogLevel> current{level_from_environment()};
  return current;
}

struct Look {
  std::string_view name, colour;
};

Look look_of(LogLevel level) {
  switch (level) {
    case LogLevel::trace:
      return {"trace", "\x1b[37m"};
    case LogLevel::debug:
      return {"debug", "\x1b[36m"};
    case LogLevel::info:
      return {"info", "\x1b[32m"};
    case LogLevel::warn:
      return {"warning", "\x1b[33m\x1b[1m"};
    case LogLevel::error:
      return {"error", "\x1b[31m\x1b[1m"};
    case LogLevel::off:
      break;
  }
  return {"off", ""};
}

struct Destination {
  std::FILE* stream = stderr;
  bool coloured = false;
};

Destination open_destination() {
  Destination to;
  const char* text = std::getenv("POPTORCH_LOG_DEST");
  const std::string name = text && *text ? text : "stderr";
  if (name == "stdout") {
    to.stream = stdout;
  } else if (name != "stderr") {
    // Appended: worker processes write to the same file.
    to.stream = std::fopen(name.c_str(), "ae");
    if (!to.stream) {
      std::fputs(
          fmt::format("POPTORCH_LOG_DEST: '{}' cannot be written; messages go to stderr\n", name)
              .c_str(),
          stderr);
      to.stream = stderr;
    }
  }
  const char* terminal = std::getenv("TERM");
  to.coloured = isatty(fileno(to.stream)) != 0 && terminal && std::string_view(terminal) != "dumb";
  return to;
}

const Destination& destination() {
  static const Destination opened = open_destination();
  return opened;
}

// Until something sets another limit, PopTorch's.
struct Repeats {
  std::mutex mutex;
  int64_t limit = 4;
  std::unordered_map<std::string, int64_t> counts;
};

Repeats& repeats() {
  static auto* instance = new Repeats;  // messages may come while the process ends
  return *instance;
}

}  // namespace

LogLevel log_level() { return level(); }
void set_log_level(LogLevel new_level) { level() = new_level; }

std::optional<LogLevel> log_level_named(std::string_view text) {
  if (text.empty()) return {};
  for (const LevelName& entry : level_names) {
    if (text == entry.name || text == entry.number) return entry.level;
  }
  return {};
}

void limit_repeated_logs(std::optional<int64_t> times) {
  Repeats& state = repeats();
  const std::lock_guard lock(state.mutex);
  state.limit = times.value_or(std::numeric_limits<int64_t>::max());
  state.counts.clear();
}

bool count_log(std::string_view message) {
  Repeats& state = repeats();
  // A process that was forked off while another thread counted would wait for ever.
  const std::unique_lock lock(state.mutex, std::try_to_lock);
  if (!lock) return true;
  constexpr size_t enough_to_forget = 1000;
  if (state.counts.size() >= enough_to_forget) state.counts.clear();
  return state.counts[std::string(message)]++ < state.limit;
}

void write_log(LogLevel message_level, std::string_view message) {
  if (count_log(message)) write_log_always(message_level, message);
}

void write_log_always(LogLevel message_level, std::string_view message) {
  const auto now = std::chrono::system_clock::now();
  const auto millis =
      std::chrono::duration_cast<std::chrono::milliseconds>(now.time_since_epoch()).count() % 1000;
  const std::time_t seconds = std::chrono::system_clock::to_time_t(now);
  std::tm local{};
  localtime_r(&seconds, &local);
  const Destination& to = destination();
  const Look look = look_of(message_level);
  // One write, so that lines of several processes do not mix.
  const std::string line =
      fmt::format("[{:02}:{:02}:{:02}.{:03}] [poptorch:cpp] [{}{}{}] {}\n", local.tm_hour,
                  local.tm_min, local.tm_sec, millis, to.coloured ? look.colour : "", look.name,
                  to.coloured && !look.colour.empty() ? "\x1b[m" : "", message);
  std::fwrite(line.data(), 1, line.size(), to.stream);
  std::fflush(to.stream);
}

}  // namespace tessera
