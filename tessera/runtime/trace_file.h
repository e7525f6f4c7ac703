// TESSERA_TRACE=FILE: the first steps that a session runs are recorded and written to FILE, for
// ui.perfetto.dev. A second session of the process writes to FILE with .2 before its ending, and so
// on.
#pragma once

#include <memory>
#include <string>

#include "tessera/backend/cpu/timeline.h"

namespace tessera {

class TraceFile {
 public:
  // Nothing unless the variable is set.
  static std::unique_ptr<TraceFile> from_environment(const cpu::Plan& plan, int threads);

  // Writes what was recorded; a file that cannot be written is a warning, not an error.
  ~TraceFile();
  TraceFile(const TraceFile&) = delete;
  TraceFile& operator=(const TraceFile&) = delete;

  cpu::Timeline& timeline() { return timeline_; }

 private:
  TraceFile(std::string path, const cpu::Plan& plan, int threads);

  std::string path_;
  cpu::Timeline timeline_;
};

// Whole or not at all. Error where it cannot be written.
void write_trace(const std::string& path, const cpu::Timeline& timeline);

}  // namespace tessera
