#include "tessera/launch/output_relay.h"

#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "tessera/base/error.h"

namespace tessera {
namespace {

constexpr size_t most_waiting = 32;  // packets; then the program waits for poprun

// Whether what was written before is still in the pipe. mpirun must read packets one by one.
bool is_unread(int file) {
  int bytes = 0;
  return ioctl(file, FIONREAD, &bytes) == 0 && bytes > 0;
}

bool has_no_reader(int file) {
  pollfd state{file, 0, 0};
  return poll(&state, 1, 0) > 0 && (state.revents & POLLERR) != 0;
}

bool is_readable(int file) {
  pollfd ready{file, POLLIN, 0};
  return file >= 0 && poll(&ready, 1, 0) > 0;
}

}  // namespace

OutputRelay::OutputRelay(int64_t instance, Way way, int file)
    : instance_(instance), way_(way), file_(file) {
  output_ = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
  std::array<char, 64> name{};
  if (output_ >= 0 && grantpt(output_) == 0 && unlockpt(output_) == 0 &&
      ptsname_r(output_, name.data(), name.size()) == 0) {
    terminal_ = open(name.data(), O_RDWR | O_NOCTTY | O_CLOEXEC);
  }
  check(terminal_ >= 0, "cannot make a terminal for the program: {}", std::strerror(errno));
  termios settings{};
  tcgetattr(terminal_, &settings);
  cfmakeraw(&settings);  // bytes stay as they are
  tcsetattr(terminal_, TCSANOW, &settings);
}

OutputRelay::~OutputRelay() {
  close_program_ends();
  if (output_ >= 0) close(output_);
}

void OutputRelay::close_program_ends() {
  if (terminal_ >= 0) close(terminal_);
  terminal_ = -1;
  errors_.close_writer();
}

bool OutputRelay::has_room() const { return waiting_.size() < most_waiting; }

int OutputRelay::readable_output() const { return has_room() ? output_ : -1; }

int OutputRelay::readable_errors() const { return has_room() ? errors_.reader() : -1; }

bool OutputRelay::take() {
  bool took = false;
  std::array<char, longest_text> buffer;
  while (has_room() && is_readable(output_)) {
    const ssize_t size = read(output_, buffer.data(), buffer.size());
    if (size < 0 && errno == EINTR) continue;
    if (size <= 0) {  // a terminal that nobody has open any more is an error
      close(output_);
      output_ = -1;
      break;
    }
    took = true;
    pass(Packet::Kind::output, {buffer.data(), static_cast<size_t>(size)});
  }
  while (has_room() && is_readable(errors_.reader())) {
    const std::string text = errors_.take(longest_text);
    took = took || !text.empty();
    pass(Packet::Kind::errors, text);
  }
  return took;
}

void OutputRelay::pass(Packet::Kind kind, std::string_view text) {
  if (way_ == Way::packets) add(kind, text);
  if (way_ == Way::kept && kind == Packet::Kind::errors) last_lines_.add(text);
}

void OutputRelay::add(Packet::Kind kind, std::string_view text) {
  while (!text.empty()) {
    const std::string_view piece = text.substr(0, longest_text);
    waiting_.push_back(encode({instance_, kind, std::string(piece)}));
    text.remove_prefix(piece.size());
  }
}

bool OutputRelay::hand_over() {
  is_broken_ = is_broken_ || has_no_reader(file_);
  while (!waiting_.empty() && !is_broken_ && !is_unread(file_)) {
    is_broken_ = !write_all(file_, waiting_.front());
    waiting_.pop_front();
  }
  return waiting_.empty() || is_broken_;
}

}  // namespace tessera
