#include "tessera/cli/quantities.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <span>
#include <vector>

#include "tessera/base/error.h"

namespace tessera {
namespace {

struct Unit {
  std::string_view name;
  double factor;
};

constexpr Unit times[] = {{"ns", 1e-9}, {"us", 1e-6}, {"ms", 1e-3}, {"s", 1}};
constexpr Unit sizes[] = {{"B", 1},      {"kB", 1e3},      {"MB", 1e6},        {"GB", 1e9},
                          {"KiB", 1024}, {"MiB", 1048576}, {"GiB", 1073741824}};
constexpr Unit bandwidths[] = {{"bit/s", 0.125},    {"kbit/s", 0.125e3},  {"Mbit/s", 0.125e6},
                               {"Gbit/s", 0.125e9}, {"B/s", 1},           {"kB/s", 1e3},
                               {"MB/s", 1e6},       {"GB/s", 1e9},        {"KiB/s", 1024},
                               {"MiB/s", 1048576},  {"GiB/s", 1073741824}};
constexpr Unit counts[] = {{"", 1}, {"k", 1e3}, {"M", 1e6}, {"G", 1e9}};

// What is read here, for the sentence that refuses something else.
struct Quantity {
  std::string_view name, example;
  std::span<const Unit> units;
};

std::string names_of(std::span<const Unit> units) {
  std::vector<std::string_view> names;
  for (const Unit& unit : units) {
    if (!unit.name.empty()) names.push_back(unit.name);
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

double parse(std::string_view text, const Quantity& quantity) {
  double number = 0;
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), number, std::chars_format::fixed);
  const std::string_view name(end, static_cast<size_t>(text.data() + text.size() - end));
  const auto unit = std::find_if(quantity.units.begin(), quantity.units.end(),
                                 [&](const Unit& known) { return known.name == name; });
  // from_chars() also reads "inf" and "nan".
  const bool read = error == std::errc() && std::isfinite(number) && number >= 0 &&
                    !std::signbit(number) && unit != quantity.units.end();
  check(read, ErrorKind::value,
        "'{}' is no {}; a number was wanted, and right behind it one of {}, such as {}", text,
        quantity.name, names_of(quantity.units), quantity.example);
  // 6.2ms is 6.2 / 1000, rounded once; 0.001 is rounded already.
  return unit->factor < 1 ? number / std::round(1 / unit->factor) : number * unit->factor;
}

int64_t parse_whole(std::string_view text, const Quantity& quantity) {
  constexpr double most = 1e15;  // far beyond any machine, and a double still counts in ones
  const double number = parse(text, quantity);
  const double whole = std::round(number);
  check(std::abs(number - whole) < 1e-6 * std::max(1.0, whole), ErrorKind::value,
        "'{}' is no whole {}", text, quantity.name);
  check(whole <= most, ErrorKind::value, "'{}' is too much; at most {:g} can be counted", text,
        most);
  return static_cast<int64_t>(whole);
}

// In the largest unit of which there is at least one, so many digits in all.
std::string text_of(double value, std::span<const Unit> units, int digits) {
  Unit unit = units.front();
  for (const Unit& larger : units) {
    if (value >= larger.factor * (1 - 1e-9)) unit = larger;
  }
  const double number = value / unit.factor;
  const int before = number < 10 ? 1 : number < 100 ? 2 : 3;
  return fmt::format("{:.{}f} {}", number, std::max(0, digits - before), unit.name);
}

// "10 Gbit/s" and not "10.0 Gbit/s".
std::string without_zeros(const std::string& text) {
  const size_t space = text.find(' '), point = text.find('.');
  if (point == std::string::npos) return text;
  const size_t last = text.find_last_not_of('0', space - 1);
  return text.substr(0, last == point ? point : last + 1) + text.substr(space);
}

}  // namespace

double parse_seconds(std::string_view text) { return parse(text, {"time", "12.5ms", times}); }

int64_t parse_bytes(std::string_view text) {
  return parse_whole(text, {"number of bytes", "256KiB", sizes});
}

double parse_bandwidth(std::string_view text) {
  return parse(text, {"bandwidth", "10Gbit/s", bandwidths});
}

int64_t parse_count(std::string_view text) {
  return parse_whole(text, {"number of parameters", "11.7M", counts});
}

std::string seconds_text(double seconds) { return without_zeros(seconds_column(seconds)); }

std::string seconds_column(double seconds) { return text_of(seconds, times, 4); }

// What is a round number of KiB is told so; anything else as disks are sold.
std::string bytes_text(int64_t bytes) {
  const bool binary = bytes > 0 && bytes % 1024 == 0 && bytes < int64_t{1} << 40;
  const std::span<const Unit> decimal(sizes, 4);
  const Unit round[] = {sizes[0], sizes[4], sizes[5], sizes[6]};
  if (!binary) return without_zeros(text_of(static_cast<double>(bytes), decimal, 3));
  return without_zeros(text_of(static_cast<double>(bytes), round, 3));
}

std::string bandwidth_text(double bytes_per_second) {
  return without_zeros(text_of(bytes_per_second, std::span<const Unit>(bandwidths, 4), 3));
}

}  // namespace tessera
