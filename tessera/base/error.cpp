#include "tessera/base/error.h"

namespace tessera {
namespace {

struct Scope {
  std::string text;
  SourcePlace place;
};

std::vector<Scope>& context_stack() {
  thread_local std::vector<Scope> stack;
  return stack;
}

std::vector<std::string> innermost_first() {
  std::vector<std::string> texts;
  const auto& stack = context_stack();
  for (auto scope = stack.rbegin(); scope != stack.rend(); ++scope) texts.push_back(scope->text);
  return texts;
}

SourcePlace innermost_place() {
  const auto& stack = context_stack();
  for (auto scope = stack.rbegin(); scope != stack.rend(); ++scope) {
    if (!scope->place.file.empty()) return scope->place;
  }
  return {};
}

std::string with_context(const std::string& message) {
  std::string text = message;
  for (const auto& line : innermost_first()) text += "\n  in " + line;
  return text;
}

}  // namespace

Error::Error(ErrorKind kind, std::string message)
    : Error(kind, std::move(message), innermost_place()) {}

Error::Error(ErrorKind kind, std::string message, SourcePlace place)
    : std::runtime_error(with_context(message)),
      kind_(kind),
      message_(std::move(message)),
      context_(innermost_first()),
      place_(std::move(place)) {}

InternalError::InternalError(std::string_view message, const char* file, int line)
    : std::logic_error(
          fmt::format("internal error: {} ({}:{}); this is a defect of Tessera, please report it",
                      message, file, line)) {}

ErrorContext::ErrorContext(std::string_view text, SourcePlace place) {
  context_stack().push_back({std::string(text), std::move(place)});
}

ErrorContext::~ErrorContext() { context_stack().pop_back(); }

}  // namespace tessera
