#include "tessera/api/logging.h"

#include "tessera/base/error.h"
#include "tessera/base/log.h"

namespace tessera {
namespace {

constexpr std::string_view levels = "TRACE (0), DEBUG (1), INFO (2), WARN (3), ERR (4) or OFF (6)";

bool is_number(std::string_view text) {
  return text.find_first_not_of("0123456789") == std::string_view::npos;
}

}  // namespace

void setLogLevel(std::string_view text) {
  const auto level = is_number(text) ? std::nullopt : log_level_named(text);
  check(level.has_value(), ErrorKind::value, "Unknown log level: {}. Valid values are {}", text,
        levels);
  set_log_level(*level);
}

void setLogLevel(int64_t number) {
  const auto level = log_level_named(fmt::format("{}", number));
  check(level.has_value(), ErrorKind::value, "Invalid log level integer {}. Valid values are {}",
        number, levels);
  set_log_level(*level);
}

}  // namespace tessera
