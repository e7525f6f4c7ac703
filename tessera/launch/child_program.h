// A program that runs as a child, with all the processes that it starts in turn.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "tessera/launch/file_pipe.h"
#include "tessera/launch/process_guard.h"

namespace tessera {

class ChildProgram {
 public:
  // Looks it up on PATH. It has these files as stdout and stderr, or ours for -1. Where it cannot
  // be started, start_error() is errno.
  ChildProgram(const std::vector<std::string>& words, int output, int errors);

  int start_error() const { return start_error_; }

  // To all of its processes.
  void send(int signal) const;

  // What waitpid() says, once it has ended. Takes care of orphans of its own too.
  std::optional<int> status();

  // After its end: its other processes may end by themselves for a moment, then they are killed.
  void end_leftovers();

 private:
  [[noreturn]] void become(const std::vector<std::string>& words, int output, int errors,
                           pid_t parent, FilePipe& failure) const;

  const bool has_own_group_;
  bool is_over_ = false;  // its numbers may be those of others now
  pid_t child_ = -1;
  int start_error_ = 0;
  std::optional<int> status_;
  std::optional<ProcessGuard> guard_;
};

}  // namespace tessera
