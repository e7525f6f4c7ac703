// The Target that tests choose kernels for: that of their level, less the kernels a test turns off.
#pragma once

#include <string>

#include "tessera/backend/cpu/lower/lower.h"
#include "tessera/backend/cpu/target.h"
#include "tessera/base/cpu_level_for_test.h"
#include "tessera/ops/split_names.h"

namespace tessera::cpu {

inline Target& target_for_test() {
  static Target target{.level = level_for_test()};
  return target;
}

// For lower().
inline LowerOptions on_test_target(LowerOptions options = {}) {
  options.target.level = target_for_test().level;
  options.target.disabled_kernels = target_for_test().disabled_kernels;
  return options;
}

// While it lives, the named entries (separated by commas) are passed over.
class WithoutKernels {
 public:
  explicit WithoutKernels(const std::string& names) {
    target_for_test().disabled_kernels = split_names(names);
  }
  ~WithoutKernels() { target_for_test().disabled_kernels.clear(); }
  WithoutKernels(const WithoutKernels&) = delete;
  WithoutKernels& operator=(const WithoutKernels&) = delete;
};

}  // namespace tessera::cpu
