// The first steps that a session runs, recorded and written to a file for ui.perfetto.dev. A second
// one in the process writes to a file with .2 before its ending, and so on.
#pragma once

#include <string>

#include "tessera/backend/cpu/timeline.h"

namespace tessera {

class TraceFile {
 public:
  TraceFile(const std::string& path, const cpu::Plan& plan, int threads);

  // Writes what was recorded; a file that cannot be written is a warning, not an error.
  ~TraceFile();
  TraceFile(const TraceFile&) = delete;
  TraceFile& operator=(const TraceFile&) = delete;

  cpu::Timeline& timeline() { return timeline_; }

 private:
  std::string path_;
  cpu::Timeline timeline_;
};

// Whole or not at all. Error where it cannot be written.
void write_trace(const std::string& path, const cpu::Timeline& timeline);

}  // namespace tessera
