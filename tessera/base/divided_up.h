// Whole parts of a whole number.
#pragma once

#include <cstdint>

namespace tessera {

/// How many parts of `part` it takes to hold `whole`; neither is negative.
constexpr int64_t divided_up(int64_t whole, int64_t part) { return (whole + part - 1) / part; }

/// The smallest multiple of `part` that holds `whole`.
constexpr int64_t rounded_up(int64_t whole, int64_t part) { return divided_up(whole, part) * part; }

}  // namespace tessera
