// Messages about one object of many. The same words about another object are no repetition, so that
// no limit of repeated messages holds them back.
#pragma once

#include "tessera/base/log.h"

namespace tessera {

void write_log_always(LogLevel level, std::string_view message);

template <typename... Args>
void log_each(LogLevel level, fmt::format_string<Args...> text, Args&&... args) {
  if (level >= log_level()) write_log_always(level, fmt::format(text, std::forward<Args>(args)...));
}

}  // namespace tessera
