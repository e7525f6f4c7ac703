// Which attributes of an optimiser may change after its program was compiled. Those that its maker
// gave are variable, all others constant; either can be said otherwise before compiling.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tessera {

class VariableAttributes {
 public:
  VariableAttributes(std::vector<std::string> variable, std::vector<std::string> allowed);

  // Errors for names that the optimiser does not have.
  void markAsConstant(const std::string& name);
  void markAsVariable(const std::string& name);

  // True also for names that the optimiser does not have: those never change.
  bool isConstant(std::string_view name) const;

  const std::vector<std::string>& variable() const { return variable_; }
  const std::vector<std::string>& allowed() const { return allowed_; }

 private:
  void check_known(const std::string& name) const;

  std::vector<std::string> variable_, allowed_;
};

}  // namespace tessera
