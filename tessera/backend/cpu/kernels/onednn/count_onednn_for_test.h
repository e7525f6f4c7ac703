// What oneDNN allocates while it runs is its own affair, and is counted apart: the functions that
// run something are wrapped in definitions of the test program. One file of a program includes it.
#pragma once

#include "tessera/base/count_allocations_for_test.h"

#if defined(TESSERA_WITH_ONEDNN) && defined(TESSERA_COUNTS_ALLOCATIONS)

#include <dlfcn.h>
#include <dnnl.h>

#include <atomic>

namespace tessera::cpu {

inline std::atomic<int64_t> onednn_runs{0};

// While it lives, this thread's allocations are not ours.
class InsideOnednn {
 public:
  InsideOnednn() {
    ++onednn_runs;
    inside_library = true;
  }
  ~InsideOnednn() { inside_library = false; }
  InsideOnednn(const InsideOnednn&) = delete;
  InsideOnednn& operator=(const InsideOnednn&) = delete;
};

// The library's function that a definition here hides.
template <typename Function>
Function* hidden(Function&, const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

}  // namespace tessera::cpu

extern "C" {

dnnl_status_t dnnl_primitive_execute(const_dnnl_primitive_t primitive, dnnl_stream_t stream,
                                     int count, const dnnl_exec_arg_t* arguments) {
  static const auto real = tessera::cpu::hidden(dnnl_primitive_execute, "dnnl_primitive_execute");
  const tessera::cpu::InsideOnednn inside;
  return real(primitive, stream, count, arguments);
}

dnnl_status_t dnnl_sgemm(char left_turned, char right_turned, dnnl_dim_t rows, dnnl_dim_t columns,
                         dnnl_dim_t depth, float alpha, const float* left, dnnl_dim_t left_step,
                         const float* right, dnnl_dim_t right_step, float beta, float* to,
                         dnnl_dim_t step) {
  static const auto real = tessera::cpu::hidden(dnnl_sgemm, "dnnl_sgemm");
  const tessera::cpu::InsideOnednn inside;
  return real(left_turned, right_turned, rows, columns, depth, alpha, left, left_step, right,
              right_step, beta, to, step);
}

}  // extern "C"

#endif
