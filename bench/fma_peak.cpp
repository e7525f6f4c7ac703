// Prints how many float32 operations one thread can do in a second, in units of 1e9: bench/run
// compares what it measured with that. Twelve chains of fused multiply-adds over registers hide the
// latency of each and touch no memory. Prints nothing on a CPU without AVX2 and FMA.

#include <algorithm>
#include <chrono>
#include <cstdio>

namespace {

#if defined(__x86_64__)

constexpr long kLoops = 100'000;          // about a millisecond: short enough to run undisturbed
constexpr long kOperations = 12 * 8 * 2;  // in one loop
constexpr int kWindows = 300;

__attribute__((target("avx2,fma"))) void multiply_and_add() {
  long loops = kLoops;
  // All registers are zero, so that no value slows the loop down.
  asm volatile(
      "vzeroall\n"
      "1:\n"
      "vfmadd231ps %%ymm12, %%ymm13, %%ymm0\n"
      "vfmadd231ps %%ymm12, %%ymm13, %%ymm1\n"
      "vfmadd231ps %%ymm12, %%ymm13, %%ymm2\n"
      "vfmadd231ps %%ymm12, %%ymm13, %%ymm3\n"
      "vfmadd231ps %%ymm12, %%ymm13, %%ymm4\n"
      "vfmadd231ps %%ymm12, %%ymm13, %%ymm5\n"
      "vfmadd231ps %%ymm12, %%ymm13, %%ymm6\n"
      "vfmadd231ps %%ymm12, %%ymm13, %%ymm7\n"
      "vfmadd231ps %%ymm12, %%ymm13, %%ymm8\n"
      "vfmadd231ps %%ymm12, %%ymm13, %%ymm9\n"
      "vfmadd231ps %%ymm12, %%ymm13, %%ymm10\n"
      "vfmadd231ps %%ymm12, %%ymm13, %%ymm11\n"
      "dec %0\n"
      "jnz 1b\n"
      "vzeroupper\n"
      : "+r"(loops)
      :
      : "cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9",
        "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15");
}

double seconds_of_a_window() {
  const auto start = std::chrono::steady_clock::now();
  multiply_and_add();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

void print_peak() {
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return;
  double best = seconds_of_a_window();
  for (int i = 1; i < kWindows; ++i) best = std::min(best, seconds_of_a_window());
  std::printf("%.2f\n", kLoops * kOperations / best / 1e9);
}

#else

void print_peak() {}

#endif

}  // namespace

int main() { print_peak(); }
