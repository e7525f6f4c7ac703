// `tessera scale`: how fast a program would be on many nodes, on paper.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/cli/scale_buckets.h"
#include "tessera/cli/scale_report.h"

namespace tessera {

// "1,2,4,...,256": rising; the three dots stand for doublings of the number before them, up to the
// one behind. Error where it is no such list.
std::vector<int64_t> parse_nodes(std::string_view text);

// Prices all of them. Error where a number of the report makes no sense.
void price_all(ScaleReport& report, const std::vector<int64_t>& nodes);

// The whole picture or what was there before; Error where it cannot be written.
void write_plot(const std::string& path, const ScaleReport& report);

}  // namespace tessera
