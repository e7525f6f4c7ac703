// Messages for people. POPTORCH_LOG_LEVEL says which are written (TRACE, DEBUG, INFO, WARN, ERR,
// OFF or their numbers; WARN by default), POPTORCH_LOG_DEST where to: stderr, stdout or a file's
// name.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <optional>
#include <string_view>

namespace tessera {

enum class LogLevel { trace = 0, debug = 1, info = 2, warn = 3, error = 4, off = 6 };

LogLevel log_level();
void set_log_level(LogLevel level);

// The level of a name as above, or of its number; nothing for any other text.
std::optional<LogLevel> log_level_named(std::string_view text);

// From now on one and the same message is written at most so many times; nothing: always.
void limit_repeated_logs(std::optional<int64_t> times);
// Counts a message; false where it has been written often enough.
bool count_log(std::string_view message);

void write_log(LogLevel level, std::string_view message);

template <typename... Args>
void log(LogLevel level, fmt::format_string<Args...> text, Args&&... args) {
  if (level >= log_level()) write_log(level, fmt::format(text, std::forward<Args>(args)...));
}

}  // namespace tessera
