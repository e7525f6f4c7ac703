#include "tessera/device/device_user.h"

#include <fmt/format.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <ctime>
#include <fstream>
#include <iterator>
#include <vector>

namespace tessera {
namespace {

constexpr std::string_view first_line = "tessera device 1";
constexpr std::string_view last_line = "end";

// One line, whatever somebody called his program.
std::string one_line(std::string text) {
  for (char& c : text) {
    if (std::iscntrl(static_cast<unsigned char>(c))) c = ' ';
  }
  while (!text.empty() && text.back() == ' ') text.pop_back();
  return text;
}

std::string command_of(const std::string& process) {
  std::ifstream stream("/proc/" + process + "/cmdline", std::ios::binary);
  return one_line({std::istreambuf_iterator<char>(stream), {}});
}

std::string user_name(uid_t id) {
  std::array<char, 4096> room;
  passwd entry, *found = nullptr;
  getpwuid_r(id, &entry, room.data(), room.size(), &found);
  return found ? one_line(found->pw_name) : std::to_string(id);
}

int64_t number_in(std::string_view text) {
  int64_t number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

// A cut must not go through a character of several bytes.
void cut(std::string& text, size_t size) {
  if (text.size() <= size) return;
  while (size > 0 && (static_cast<unsigned char>(text[size]) & 0xc0) == 0x80) --size;
  text.resize(size);
}

}  // namespace

DeviceUser this_process() {
  // Looked up once: somewhere on the network, perhaps.
  static const std::string own_name = user_name(geteuid());
  return {.pid = getpid(),
          .command = command_of("self"),
          .user = own_name,
          .since = std::time(nullptr)};
}

DeviceUser process_of(int64_t pid) {
  DeviceUser user{.pid = pid};
  if (pid <= 0) return user;
  user.command = command_of(std::to_string(pid));
  struct stat about;
  if (stat(("/proc/" + std::to_string(pid)).c_str(), &about) == 0) {
    user.user = user_name(about.st_uid);
    user.since = about.st_mtime;
  }
  return user;
}

std::string to_record(const DeviceUser& user, size_t size) {
  std::string purpose = one_line(user.purpose), name = one_line(user.user);
  cut(purpose, size / 4);
  cut(name, size / 8);
  std::string text =
      fmt::format("{}\n{}\n{}\n{}\n{}\n{}\n{}\n{}\n", first_line, user.pid, user.since, user.device,
                  user.ipus.first, user.ipus.count, name, purpose);
  std::string command = one_line(user.command);
  cut(command, size - std::min(size, text.size() + last_line.size() + 2));
  return text + command + '\n' + std::string(last_line) + '\n';
}

std::optional<DeviceUser> from_record(std::string_view bytes) {
  std::vector<std::string_view> lines;
  while (lines.size() < 10) {
    const size_t end = bytes.find('\n');
    if (end == std::string_view::npos) return std::nullopt;
    lines.push_back(bytes.substr(0, end));
    bytes.remove_prefix(end + 1);
  }
  if (lines[0] != first_line || lines[9] != last_line) return std::nullopt;
  return DeviceUser{.pid = number_in(lines[1]),
                    .command = std::string(lines[8]),
                    .user = std::string(lines[6]),
                    .purpose = std::string(lines[7]),
                    .since = number_in(lines[2]),
                    .device = number_in(lines[3]),
                    .ipus = {number_in(lines[4]), number_in(lines[5])}};
}

std::string spoken_duration(int64_t seconds) {
  seconds = std::max<int64_t>(seconds, 0);
  if (seconds < 60) return fmt::format("{}s", seconds);
  if (seconds < 3600) return fmt::format("{}m{}s", seconds / 60, seconds % 60);
  if (seconds < 86400) return fmt::format("{}h{}m", seconds / 3600, seconds / 60 % 60);
  return fmt::format("{}d{}h", seconds / 86400, seconds / 3600 % 24);
}

}  // namespace tessera
