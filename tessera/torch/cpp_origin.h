// Where a C++ program is, for models written in C++.
//
// File and line are those of the innermost frame outside of libtorch and Tessera, as far as the
// program's debug information tells (-g1 is enough). LibTorch's modules have no hooks, so the
// module comes from the classes whose forward() is on the stack: each step down takes the one
// module below of that class. In a Sequential, which runs its children in order, several of one
// class are told apart; elsewhere the enclosing module is the answer.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "tessera/ir/graph.h"

namespace tessera {

struct ModuleClass {
  std::string path;  // "" is the model itself
  std::string name;  // "torch::nn::ReLUImpl"
};

class CppLocator {
 public:
  explicit CppLocator(std::vector<ModuleClass> modules);

  Origin operator()();

 private:
  std::string module_path(const std::vector<std::string>& running);
  const ModuleClass* next_child(const ModuleClass& sequential, const std::string& name);

  std::vector<ModuleClass> modules_;
  std::map<std::string, const ModuleClass*> newest_child_;  // of each Sequential
};

}  // namespace tessera
