#include "tessera/base/error.h"

namespace tessera {
namespace {

std::vector<std::string>& context_stack() {
  thread_local std::vector<std::string> stack;
  return stack;
}

std::vector<std::string> innermost_first() {
  const auto& stack = context_stack();
  return {stack.rbegin(), stack.rend()};
}

std::string with_context(const std::string& message) {
  std::string text = message;
  for (const auto& line : innermost_first()) text += "\n  in " + line;
  return text;
}

}  // namespace

Error::Error(ErrorKind kind, std::string message)
    : std::runtime_error(with_context(message)),
      kind_(kind),
      message_(std::move(message)),
      context_(innermost_first()) {}

InternalError::InternalError(std::string_view message, const char* file, int line)
    : std::logic_error(
          fmt::format("internal error: {} ({}:{}); this is a defect of Tessera, please report it",
                      message, file, line)) {}

ErrorContext::ErrorContext(std::string_view text) { context_stack().emplace_back(text); }

ErrorContext::~ErrorContext() { context_stack().pop_back(); }

}  // namespace tessera
