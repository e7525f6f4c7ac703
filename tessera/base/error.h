// The two ways things go wrong. An Error is the user's to fix: it says what was wanted, what came
// and what to do. An InternalError is ours: a broken promise inside Tessera, with our file and
// line. ErrorContext names what a scope is doing; an Error thrown inside it carries those names,
// and the place in the user's program that the innermost scope with one works for.
#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/source_place.h"

namespace tessera {

// What kind of mistake an Error is. Front ends map it to the exception class their users expect.
enum class ErrorKind {
  assertion,
  value,
  type,
  attribute,
  runtime,
  user,
  recoverable,
  unrecoverable
};

class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, std::string message);
  Error(ErrorKind kind, std::string message, SourcePlace place);

  ErrorKind kind() const { return kind_; }
  const std::string& message() const { return message_; }               // the bare sentence
  const std::vector<std::string>& context() const { return context_; }  // innermost first
  const SourcePlace& place() const { return place_; }  // without a file where none is known

 private:
  ErrorKind kind_;
  std::string message_;
  std::vector<std::string> context_;
  SourcePlace place_;
};

class InternalError : public std::logic_error {
 public:
  InternalError(std::string_view message, const char* file, int line);
};

// Names what the enclosing scope is doing, and where the user asked for it, for every Error thrown
// inside it. For compile time, not for loops that run kernels.
class ErrorContext {
 public:
  template <typename... Args>
  explicit ErrorContext(fmt::format_string<Args...> text, Args&&... args)
      : ErrorContext(std::string_view(fmt::format(text, std::forward<Args>(args)...))) {}
  template <typename... Args>
  ErrorContext(SourcePlace place, fmt::format_string<Args...> text, Args&&... args)
      : ErrorContext(std::string_view(fmt::format(text, std::forward<Args>(args)...)),
                     std::move(place)) {}
  explicit ErrorContext(std::string_view text, SourcePlace place = {});
  ~ErrorContext();
  ErrorContext(const ErrorContext&) = delete;
  ErrorContext& operator=(const ErrorContext&) = delete;
};

template <typename... Args>
[[noreturn]] void fail(ErrorKind kind, fmt::format_string<Args...> text, Args&&... args) {
  throw Error(kind, fmt::format(text, std::forward<Args>(args)...));
}

template <typename... Args>
void check(bool ok, ErrorKind kind, fmt::format_string<Args...> text, Args&&... args) {
  if (!ok) fail(kind, text, std::forward<Args>(args)...);
}

template <typename... Args>
void check(bool ok, fmt::format_string<Args...> text, Args&&... args) {
  if (!ok) fail(ErrorKind::user, text, std::forward<Args>(args)...);
}

}  // namespace tessera

#define TESSERA_INVARIANT(condition, ...)                                             \
  do {                                                                                \
    if (!(condition)) [[unlikely]]                                                    \
      throw ::tessera::InternalError(::fmt::format(__VA_ARGS__), __FILE__, __LINE__); \
  } while (false)

// Where no program can come: throws without a condition, so that the compiler knows too.
#define TESSERA_UNREACHABLE(...) \
  throw ::tessera::InternalError(::fmt::format(__VA_ARGS__), __FILE__, __LINE__)
