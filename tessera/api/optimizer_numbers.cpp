#include "tessera/api/optimizer_numbers.h"

#include <fmt/format.h>

namespace tessera {

std::vector<std::pair<std::string, double>> named_numbers(const Optimizer& optimizer) {
  std::vector<std::pair<std::string, double>> numbers;
  const UpdateSpec program = optimizer.program();
  for (size_t g = 0; g < optimizer.groups().size(); ++g) {
    const auto& values = optimizer.groups()[g].values;
    const auto value = [&](const char* name, double fallback) {
      const auto at = values.find(name);
      return at == values.end() ? fallback : at->second;
    };
    const double rate = value("lr", 0), decay = value("weight_decay", 0);
    const std::string group = g == 0 ? "default" : fmt::format("group{}", g);
    const auto add = [&](const std::string& name, double number) {
      numbers.emplace_back(fmt::format("{}___{}___FLOAT", name, group), number);
    };
    if (program.groups[g].op == "sgd") {
      // PopTorch has several forms of SGD, told apart by a digit.
      const char form = program.groups[g].velocity ? '1' : '0';
      add(fmt::format("scaledLearningRate{}", form), rate);
      add(fmt::format("weightDecayScaleFactor{}", form), 1 - rate * decay);
    } else {
      add("learningRate", rate);
      add("weightDecay", decay);
    }
  }
  return numbers;
}

}  // namespace tessera
