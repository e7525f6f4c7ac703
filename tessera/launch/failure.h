// How an instance failed, in the one sentence that users see.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tessera {

struct Failure {
  int exit_code = 1;  // 128 and the number of a signal, as shells have it
  std::string sentence;

  bool operator==(const Failure&) const = default;
};

// What waitpid() said of a child, as an exit code.
int exit_code_of(int status);

// "instance 1 on host a was killed by signal 9 (Killed)", and what becomes of the others.
Failure failure_of(int64_t instance, std::string_view host, int status, bool has_others);

// The same where the program could not even be started, with errno's reason: 127 where there is no
// such program, 126 where it cannot be run.
Failure start_failure_of(int64_t instance, std::string_view host, std::string_view program,
                         int error, bool has_others);

// As one text, and back.
std::string text_of(const Failure& failure);
Failure failure_in(const std::string& text);

}  // namespace tessera
