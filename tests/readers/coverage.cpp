// What GCC's -fsanitize-coverage=trace-pc calls, as counters that libFuzzer looks at.
#include <cstddef>
#include <cstdint>

extern "C" void __sanitizer_cov_8bit_counters_init(uint8_t* begin, uint8_t* end);
extern "C" void __sanitizer_cov_pcs_init(const uintptr_t* begin, const uintptr_t* end);
extern "C" const char __executable_start;  // where the program was loaded: not always at one place

namespace {

constexpr size_t count = size_t{1} << 16;
uint8_t counters[count];
uintptr_t places[2 * count];  // libFuzzer wants one for each counter: an address and flags

const bool registered = [] {
  __sanitizer_cov_8bit_counters_init(counters, counters + count);
  __sanitizer_cov_pcs_init(places, places + 2 * count);
  return true;
}();

}  // namespace

extern "C" __attribute__((no_sanitize("address", "undefined"))) void __sanitizer_cov_trace_pc() {
  const auto place = reinterpret_cast<uintptr_t>(__builtin_return_address(0)) -
                     reinterpret_cast<uintptr_t>(&__executable_start);
  ++counters[(place * 0x9E3779B97F4A7C15U) >> 48];
}

// Comparisons of floats, of which libFuzzer knows nothing.
extern "C" void __sanitizer_cov_trace_cmpf(float, float) {}
extern "C" void __sanitizer_cov_trace_cmpd(double, double) {}
