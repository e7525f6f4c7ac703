// A process that does nothing but wait for the one that made it to go. Where that one is killed, it
// ends a group of processes that would be left behind otherwise: a program with the workers of its
// data loader.
#pragma once

#include <sys/types.h>

#include "tessera/launch/file_pipe.h"

namespace tessera {

class ProcessGuard {
 public:
  explicit ProcessGuard(pid_t group);
  // The group needs no guard any more.
  ~ProcessGuard();
  ProcessGuard(const ProcessGuard&) = delete;
  ProcessGuard& operator=(const ProcessGuard&) = delete;

 private:
  FilePipe alive_;
  pid_t guard_;
};

}  // namespace tessera
