// What an instance writes, on its way from the program to poprun: in packets, one at a time. Or
// kept: of an instance that is to be silent, the end of its stderr may be wanted.
#pragma once

#include <deque>
#include <string>

#include "tessera/launch/file_pipe.h"
#include "tessera/launch/last_lines.h"
#include "tessera/launch/packet.h"

namespace tessera {

class OutputRelay {
 public:
  enum class Way { packets, kept };

  // Packets go to the file, mpirun's pipe.
  OutputRelay(int64_t instance, Way way, int file);
  ~OutputRelay();
  OutputRelay(const OutputRelay&) = delete;
  OutputRelay& operator=(const OutputRelay&) = delete;

  // What the program gets as its stdout and stderr. The first is a terminal, as under mpirun
  // itself: otherwise programs would keep their lines back.
  int program_output() const { return terminal_; }
  int program_errors() const { return errors_.writer(); }
  // When the program has them.
  void close_program_ends();

  // To be waited for; -1 where nothing more is to be read for now.
  int readable_output() const;
  int readable_errors() const;

  // Takes what the program wrote, if there is room. False where there was nothing.
  bool take();
  // Nobody can write any more, and all is taken.
  bool is_at_end() const { return output_ < 0 && errors_.is_at_end(); }

  // Lets a text of ours follow.
  void add(Packet::Kind kind, std::string_view text);

  // Hands over what mpirun is ready for. False where something is left, and somebody to read it.
  bool hand_over();

  // Of its stderr, where it is kept.
  std::string last_lines() const { return last_lines_.text(); }

 private:
  bool has_room() const;
  void pass(Packet::Kind kind, std::string_view text);

  const int64_t instance_;
  const Way way_;
  const int file_;
  int output_ = -1, terminal_ = -1;  // two ends
  FilePipe errors_;
  std::deque<std::string> waiting_;  // encoded
  bool is_broken_ = false;           // nobody reads any more
  LastLines last_lines_;
};

}  // namespace tessera
