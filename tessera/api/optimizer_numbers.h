// The optimiser's numbers by the names that PopTorch's users know: what a program's
// hyper-parameters are called among its tensors.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "tessera/api/optimizer.h"

namespace tessera {

// `scaledLearningRate0___default___FLOAT` and its like, in a fixed order, for the first group;
// other groups have `group<i>` in place of `default`.
std::vector<std::pair<std::string, double>> named_numbers(const Optimizer& optimizer);

}  // namespace tessera
