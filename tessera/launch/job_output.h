// What is shown of a job: the lines of its instances, each whole and with its tag, what mpirun and
// ssh have to say, and the one sentence about the instance that failed first. All of it comes
// through mpirun's stderr, what instances write in packets of their supervisors.
#pragma once

#include <optional>

#include "tessera/launch/failure.h"
#include "tessera/launch/mpirun_messages.h"
#include "tessera/launch/packet.h"
#include "tessera/launch/woven_lines.h"

namespace tessera {

class JobOutput {
 public:
  using Time = WovenLines::Time;

  // With everything: also further failures, and mpirun's own words about them.
  explicit JobOutput(bool everything) : everything_(everything), messages_(everything) {}

  // Takes what mpirun wrote.
  void add(std::string_view bytes, Time now);
  // Nothing more will come.
  void finish();

  // Takes what is to be written to stdout and to stderr, lines among it that are not over and to
  // which nothing was added since.
  struct Text {
    std::string output, errors;
  };
  Text take(Time since);
  bool has_begun() const { return output_lines_.has_begun() || error_lines_.has_begun(); }

  // From now on instances end because they are told to.
  void expect_end();

  const std::optional<Failure>& failure() const { return failure_; }
  const std::string& of_mpirun() const { return messages_.all(); }

 private:
  void add_line(const std::string& line, Time now);
  void add_packet(const Packet& packet, Time now);
  void add_failure(const Failure& failure);

  const bool everything_;
  bool is_ending_ = false;
  std::string begun_;  // of mpirun's line that is not over
  MpirunMessages messages_;
  WovenLines output_lines_, error_lines_;
  Text text_;
  std::optional<Failure> failure_;
};

}  // namespace tessera
