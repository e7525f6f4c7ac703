#include "tessera/api/options/option_warnings.h"

#include <mutex>

#include "tessera/base/log.h"

namespace tessera {
namespace {

struct Shown {
  std::mutex mutex;
  std::function<void(const std::string&)> show;
};

Shown& shown() {
  static auto* instance = new Shown;  // setters may run while the process ends
  return *instance;
}

}  // namespace

void show_option_warnings(std::function<void(const std::string& message)> show) {
  const std::lock_guard lock(shown().mutex);
  shown().show = std::move(show);
}

void show_option_warning(const std::string& message) {
  std::function<void(const std::string&)> show;
  {
    const std::lock_guard lock(shown().mutex);
    show = shown().show;
  }
  if (show) {
    show(message);
  } else {
    log(LogLevel::warn, "{}", message);
  }
}

}  // namespace tessera
