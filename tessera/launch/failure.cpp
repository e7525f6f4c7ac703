#include "tessera/launch/failure.h"

#include <fmt/format.h>
#include <sys/wait.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

namespace tessera {
namespace {

std::string sentence(int64_t instance, std::string_view host, std::string_view what,
                     bool has_others) {
  return fmt::format("instance {} on host {} {}{}", instance, host, what,
                     has_others ? "; the other instances are ended" : "");
}

}  // namespace

int exit_code_of(int status) {
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

Failure failure_of(int64_t instance, std::string_view host, int status, bool has_others) {
  const std::string what = WIFSIGNALED(status)
                               ? fmt::format("was killed by signal {} ({})", WTERMSIG(status),
                                             strsignal(WTERMSIG(status)))
                               : fmt::format("ended with exit code {}", WEXITSTATUS(status));
  return {exit_code_of(status), sentence(instance, host, what, has_others)};
}

Failure start_failure_of(int64_t instance, std::string_view host, std::string_view program,
                         int error, bool has_others) {
  const std::string what = fmt::format("could not start '{}': {}", program, std::strerror(error));
  return {error == ENOENT || error == ENOTDIR ? 127 : 126,
          sentence(instance, host, what, has_others)};
}

std::string text_of(const Failure& failure) {
  return fmt::format("{} {}", failure.exit_code, failure.sentence);
}

Failure failure_in(const std::string& text) {
  return {std::atoi(text.c_str()), text.substr(text.find(' ') + 1)};
}

}  // namespace tessera
