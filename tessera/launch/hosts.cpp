#include "tessera/launch/hosts.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cstdint>

#include "tessera/base/error.h"

namespace tessera {
namespace {

constexpr size_t most_hosts = 10000;
constexpr const char* how_to_write = "write a,b or host[0-2,4]";

// At the commas that are not in brackets.
std::vector<std::string_view> split_at_commas(std::string_view list) {
  std::vector<std::string_view> parts;
  size_t begin = 0;
  bool inside = false;
  for (size_t i = 0; i <= list.size(); ++i) {
    if (i < list.size() && (list[i] == '[' || list[i] == ']')) inside = list[i] == '[';
    if (i < list.size() && (inside || list[i] != ',')) continue;
    parts.push_back(list.substr(begin, i - begin));
    begin = i + 1;
  }
  return parts;
}

std::string_view without_blanks(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t") - begin + 1);
}

int64_t number_of(std::string_view digits, std::string_view name) {
  int64_t number = -1;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  check(error == std::errc() && end == digits.data() + digits.size() && number >= 0 &&
            digits.size() <= 9,
        ErrorKind::value, "'{}' is no list of hosts: '{}' is no number; {}", name, digits,
        how_to_write);
  return number;
}

// `4` or `0-2`, with as many digits as the first number has.
std::vector<std::string> numbers_of(std::string_view range, std::string_view name) {
  const size_t dash = range.find('-');
  const std::string_view first = range.substr(0, dash);
  const std::string_view last = dash == std::string_view::npos ? first : range.substr(dash + 1);
  const int64_t begin = number_of(first, name), end = number_of(last, name);
  check(begin <= end && end - begin < int64_t{most_hosts}, ErrorKind::value,
        "'{}' is no list of hosts: {} is no range; {}", name, range, how_to_write);
  std::vector<std::string> numbers;
  for (int64_t i = begin; i <= end; ++i) {
    numbers.push_back(fmt::format("{:0{}}", i, first.size()));
  }
  return numbers;
}

// The names that one name with brackets stands for; those of the first bracket change slowest.
std::vector<std::string> expand(std::string_view name) {
  const size_t open = name.find('['), close = name.find(']');
  if (open == std::string_view::npos && close == std::string_view::npos) return {std::string(name)};
  check(open < close && close != std::string_view::npos, ErrorKind::value,
        "'{}' is no list of hosts: a bracket stands alone; {}", name, how_to_write);
  std::vector<std::string> names;
  for (const std::string_view range : split_at_commas(name.substr(open + 1, close - open - 1))) {
    for (const std::string& number : numbers_of(range, name)) {
      for (const std::string& rest : expand(name.substr(close + 1))) {
        names.push_back(fmt::format("{}{}{}", name.substr(0, open), number, rest));
        check(names.size() <= most_hosts, ErrorKind::value, "'{}' stands for more than {} hosts",
              name, most_hosts);
      }
    }
  }
  return names;
}

// A name that begins with a dash would be an option of ssh.
bool is_name(std::string_view host) {
  if (host.empty() || host.front() == '-') return false;
  return std::all_of(host.begin(), host.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '.' || c == '-' || c == '_' || c == '@';
  });
}

}  // namespace

std::vector<std::string> expand_hosts(std::string_view list) {
  std::vector<std::string> hosts;
  for (const std::string_view part : split_at_commas(list)) {
    for (std::string& host : expand(without_blanks(part))) {
      check(is_name(host), ErrorKind::value, "'{}' is no name of a host; {}", host, how_to_write);
      check(std::find(hosts.begin(), hosts.end(), host) == hosts.end(), ErrorKind::value,
            "the host {} is named twice; name it once, with more --num-instances", host);
      hosts.push_back(std::move(host));
    }
  }
  return hosts;
}

std::string this_host() {
  std::array<char, 256> name{};
  if (gethostname(name.data(), name.size() - 1) != 0) return "localhost";
  return name.data();
}

bool is_this_host(std::string_view host) {
  const std::string own = this_host();
  return host == "localhost" || host == "127.0.0.1" || host == own ||
         host == own.substr(0, own.find('.'));
}

}  // namespace tessera
