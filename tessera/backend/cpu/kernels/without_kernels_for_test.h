// Turns kernels off for a test.
#pragma once

#include <cstdlib>
#include <string>

namespace tessera::cpu {

// While it lives, the named entries (separated by commas) are passed over.
class WithoutKernels {
 public:
  explicit WithoutKernels(const std::string& names) {
    setenv("TESSERA_DISABLE_KERNELS", names.c_str(), 1);
  }
  ~WithoutKernels() { unsetenv("TESSERA_DISABLE_KERNELS"); }
  WithoutKernels(const WithoutKernels&) = delete;
  WithoutKernels& operator=(const WithoutKernels&) = delete;
};

}  // namespace tessera::cpu
