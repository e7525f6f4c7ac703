#include "tessera/backend/cpu/target.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace tessera::cpu {

std::string print(const Target& target) {
  std::string text =
      fmt::format("{}, vectors of {} floats", name_of(target.level), target.vector_width());
  if (target.precise) text += ", precise";
  if (target.autotune) text += ", autotuned";
  if (!target.disabled_kernels.empty()) {
    text += fmt::format(", without {}", fmt::join(target.disabled_kernels, ", "));
  }
  return text;
}

}  // namespace tessera::cpu
