#include "tessera/api/optimizer/optimizer_numbers.h"

#include <fmt/format.h>

namespace tessera {

std::vector<std::pair<std::string, double>> named_numbers(const Optimizer& optimizer,
                                                          const Optimizer::Names& parameters) {
  std::vector<std::pair<std::string, double>> numbers;
  const OptimizerKind& kind = optimizer_kind(optimizer.kind());
  const UpdateSpec program = optimizer.program();
  const bool combined = value_of(optimizer.settings().values, "use_combined_accum", 0) != 0;
  for (size_t g = 0; g < parameters.size(); ++g) {
    for (const DeviceNumber& number : kind.device_numbers(program.groups[g].velocity, combined)) {
      const double value = number.value(optimizer.groups()[g].values);
      if (g == 0) numbers.emplace_back(fmt::format("{}___default___FLOAT", number.prefix), value);
      for (const std::string& parameter : parameters[g]) {
        numbers.emplace_back(fmt::format("{}___specific___{}", number.prefix, parameter), value);
      }
    }
  }
  return numbers;
}

}  // namespace tessera
