// The optimiser's numbers by the names that PopTorch's users know: what a program's
// hyper-parameters are called among its tensors.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "tessera/api/optimizer/optimizer.h"

namespace tessera {

// `scaledLearningRate0___specific___<parameter>` and its like, constants included, in a fixed
// order; the numbers of the first group are also called `scaledLearningRate0___default___FLOAT`.
std::vector<std::pair<std::string, double>> named_numbers(const Optimizer& optimizer,
                                                          const Optimizer::Names& parameters);

}  // namespace tessera
