#include "tessera/api/optimizer/attribute_tracker.h"

#include <algorithm>

#include "tessera/base/log_each.h"

namespace tessera {
namespace {

bool contains(const std::vector<std::string_view>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// PyTorch's, which concern step() on the host.
bool is_pytorchs(std::string_view name) {
  static const std::vector<std::string_view> names = {
      "defaults", "state",    "param_groups", "variable_attrs", "params",
      "foreach",  "maximize", "capturable",   "differentiable", "fused"};
  return contains(names, name);
}

}  // namespace

void AttributeTracker::look_at(const Optimizer& optimizer, LogLevel level) {
  for (const std::string& name : optimizer.settings().attributes) {
    if (is_pytorchs(name) || contains(optimizer_wide_attributes(), name)) continue;
    if (!of_optimizers_.insert(name).second || first_) continue;
    log_each(level,
             "Ignoring unexpected optimizer attribute '{}' of {}: the program does not know it",
             name, optimizer.kind());
  }
  for (size_t g = 0; g < optimizer.groups().size(); ++g) {
    for (const std::string& name : optimizer.groups()[g].others) {
      if (is_pytorchs(name) || !of_groups_.insert(name).second) continue;
      if (contains(optimizer_wide_attributes(), name)) {
        log_each(level,
                 "Ignoring unexpected group {} attribute '{}' of {}: it is an attribute of the "
                 "whole optimiser",
                 g, name, optimizer.kind());
      } else if (!first_) {
        log_each(level,
                 "Ignoring unexpected group {} attribute '{}' of {}: the program does not know it",
                 g, name, optimizer.kind());
      }
    }
  }
  first_ = false;
}

}  // namespace tessera
