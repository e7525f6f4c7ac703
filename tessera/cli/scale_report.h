// What `tessera scale` tells, and the forms in which it does.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/cli/scale_model.h"

namespace tessera {

struct ScaleReport {
  Workload workload = {};
  Cluster cluster = {};
  std::string source = {};              // where the buckets are from
  std::string assumed = {};             // how it is known when they are ready
  int64_t samples = 0;                  // of one instance's step; 0: not known
  std::vector<ScalePoint> points = {};  // the fewest nodes first
};

// At a point of this report, whose samples are known.
double samples_per_second(const ScaleReport& report, const ScalePoint& point);

// A table, a plot of block characters that 80 columns hold, and advice().
std::string scale_as_text(const ScaleReport& report);
std::string scale_as_json(const ScaleReport& report);

// A picture that needs nothing beside it.
std::string scale_as_svg(const ScaleReport& report);

// One sentence: what bounds the step, and what would help by how much.
std::string advice(const ScaleReport& report);

}  // namespace tessera
