// Messages for people on stderr. The level comes from POPTORCH_LOG_LEVEL (TRACE, DEBUG, INFO, WARN,
// ERR, OFF); the default is WARN.
#pragma once

#include <fmt/format.h>

#include <string_view>

namespace tessera {

enum class LogLevel { trace = 0, debug = 1, info = 2, warn = 3, error = 4, off = 6 };

LogLevel log_level();
void set_log_level(LogLevel level);
void write_log(LogLevel level, std::string_view message);

template <typename... Args>
void log(LogLevel level, fmt::format_string<Args...> text, Args&&... args) {
  if (level >= log_level()) write_log(level, fmt::format(text, std::forward<Args>(args)...));
}

}  // namespace tessera
