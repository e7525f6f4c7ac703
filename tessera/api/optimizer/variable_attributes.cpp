#include "tessera/api/optimizer/variable_attributes.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "tessera/base/error.h"

namespace tessera {

VariableAttributes::VariableAttributes(std::vector<std::string> variable,
                                       std::vector<std::string> allowed)
    : variable_(std::move(variable)), allowed_(std::move(allowed)) {}

void VariableAttributes::check_known(const std::string& name) const {
  check(std::find(allowed_.begin(), allowed_.end(), name) != allowed_.end(), ErrorKind::assertion,
        "Unknown attribute {}; this optimiser has {}", name, fmt::join(allowed_, ", "));
}

void VariableAttributes::markAsConstant(const std::string& name) {
  check_known(name);
  std::erase(variable_, name);
}

void VariableAttributes::markAsVariable(const std::string& name) {
  check_known(name);
  if (isConstant(name)) variable_.push_back(name);
}

bool VariableAttributes::isConstant(std::string_view name) const {
  return std::find(variable_.begin(), variable_.end(), name) == variable_.end();
}

}  // namespace tessera
