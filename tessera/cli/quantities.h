// Quantities as people write them: a number and right behind it a unit, "12.5ms", "256KiB",
// "10Gbit/s". Read strictly, since a unit that is taken for another one is wrong by a factor of
// eight or a thousand: an Error says which units there are. In the program they are seconds and
// bytes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tessera {

double parse_seconds(std::string_view text);    // ns us ms s
int64_t parse_bytes(std::string_view text);     // B kB MB GB KiB MiB GiB, a whole number of bytes
double parse_bandwidth(std::string_view text);  // any of them /s, bits too; bytes a second
int64_t parse_count(std::string_view text);     // 11.7M: nothing, k, M or G

// With the unit that suits and few digits.
std::string seconds_text(double seconds);    // "12.5 ms"
std::string seconds_column(double seconds);  // "12.50 ms": always four of them
std::string bytes_text(int64_t bytes);
std::string bandwidth_text(double bytes_per_second);  // in bits, as networks are sold

}  // namespace tessera
