#include "tessera/launch/job_output.h"

#include <fmt/format.h>

#include <utility>

namespace tessera {

void JobOutput::add(std::string_view bytes, Time now) {
  for (size_t end; (end = bytes.find('\n')) != std::string_view::npos;
       bytes.remove_prefix(end + 1)) {
    add_line(std::exchange(begun_, {}).append(bytes.substr(0, end)), now);
  }
  begun_ += bytes;
}

void JobOutput::finish() {
  if (!begun_.empty()) add_line(std::exchange(begun_, {}), {});
  for (const std::string& line : messages_.finish()) text_.errors += error_lines_.add_line(line);
}

void JobOutput::add_line(const std::string& line, Time now) {
  const std::optional<Packet> packet = decode(line);
  if (packet) return add_packet(*packet, now);
  for (const std::string& shown : messages_.add(line)) text_.errors += error_lines_.add_line(shown);
}

// The tags are mpirun's.
void JobOutput::add_packet(const Packet& packet, Time now) {
  switch (packet.kind) {
    case Packet::Kind::output:
      text_.output +=
          output_lines_.add(fmt::format("[1,{}]<stdout>:", packet.instance), packet.text, now);
      break;
    case Packet::Kind::errors:
      text_.errors +=
          error_lines_.add(fmt::format("[1,{}]<stderr>:", packet.instance), packet.text, now);
      break;
    case Packet::Kind::failure:
      add_failure(failure_in(packet.text));
  }
}

// Those that follow from the first, or from an end that was asked for, explain nothing.
void JobOutput::add_failure(const Failure& failure) {
  const bool is_first = !failure_ && !is_ending_;
  if (is_first) failure_ = failure;
  messages_.expect_end();
  if (!is_first && !everything_) return;
  text_.errors += error_lines_.show_begun(Time::max());
  text_.errors += error_lines_.add_line("poprun: " + failure.sentence);
}

void JobOutput::expect_end() {
  is_ending_ = true;
  messages_.expect_end();
}

JobOutput::Text JobOutput::take(Time since) {
  text_.output += output_lines_.show_begun(since);
  text_.errors += error_lines_.show_begun(since);
  return std::exchange(text_, {});
}

}  // namespace tessera
