// The optimisers as data: which numbers and flags they have, which of these may change, and what
// they are called in programs, logs and state dictionaries.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tessera/ir/attributes.h"

namespace tessera {

// By PyTorch's names: lr, momentum, ...; a pair of betas is beta1 and beta2; flags are 0 or 1,
// types of accumulators their bits.
using OptimizerValues = std::map<std::string, double, std::less<>>;

double value_of(const OptimizerValues& values, std::string_view name, double fallback = 0);

// What becomes of a number of PyTorch's own optimisers, whose makers leave no trace.
enum class TorchRule { variable, constant, constant_at_default };

struct OptimizerNumber {
  std::string_view name;
  std::string_view operand;  // of the row, and so of the program's input
  std::string_view spoken;   // in the log and in state dictionaries
  double fallback = 0;       // PyTorch's default
  TorchRule rule = TorchRule::constant_at_default;
  std::string_view attribute;  // the user's name for it: betas for beta1
  bool below_one = false;
};

struct OptimizerFlag {
  std::string_view name;
  std::string_view attr;  // of the row; none where the flag chooses the row or what it is given
  bool fallback = false;
};

// A number of the program as state dictionaries have it: it may be made of several of ours.
struct DeviceNumber {
  std::string_view prefix;
  std::string_view attribute;  // listed where this one is variable
  std::function<double(const OptimizerValues&)> value;
  std::function<void(OptimizerValues&, double)> apply;  // makes value() this
};

struct OptimizerKind {
  std::string_view name;
  std::string_view op;
  std::vector<OptimizerNumber> numbers;
  std::vector<OptimizerFlag> flags = {};
  Attrs attrs = {};
  std::string_view centered_op = {};
  // What the row remembers, with the attribute that says in which type.
  std::vector<std::pair<std::string_view, std::string_view>> memories = {};
  // Attributes beside numbers and flags, which users may call constant or variable.
  std::vector<std::string_view> others = {};
  // Which numbers a program has, where these depend on what a group of parameters remembers. Null
  // where they are the ones above.
  const std::vector<DeviceNumber>& (*scaled_numbers)(bool velocity, bool combined) = nullptr;

  std::vector<std::string> attributes() const;
  const std::vector<DeviceNumber>& device_numbers(bool velocity, bool combined) const;
};

const OptimizerKind& optimizer_kind(std::string_view name);

// What an optimiser has once, whatever a group of parameters says; and those of it that are types.
const std::vector<std::string_view>& optimizer_wide_attributes();
const std::vector<std::string_view>& optimizer_type_attributes();

}  // namespace tessera
