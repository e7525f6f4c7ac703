// Warnings about options: what is deprecated, ignored or done otherwise. A front end may show them
// in its own way.
#pragma once

#include <fmt/format.h>

#include <functional>
#include <string>

namespace tessera {

// In place of the log, from now on. Called on any thread.
void show_option_warnings(std::function<void(const std::string& message)> show);

void show_option_warning(const std::string& message);

template <typename... Args>
void warn_about_option(fmt::format_string<Args...> text, Args&&... args) {
  show_option_warning(fmt::format(text, std::forward<Args>(args)...));
}

}  // namespace tessera
