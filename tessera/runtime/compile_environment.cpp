#include "tessera/runtime/compile_environment.h"

#include <cstdlib>
#include <string_view>

#include "tessera/backend/cpu/kernels/preference.h"
#include "tessera/base/error.h"
#include "tessera/ops/split_names.h"
#include "tessera/passes/pass.h"

namespace tessera {
namespace {

std::string_view variable(const char* name) {
  const char* text = std::getenv(name);
  return text ? text : "";
}

std::vector<std::string> names_in(const char* name) {
  const std::string_view text = variable(name);
  return text.empty() ? std::vector<std::string>{} : split_names(text);
}

bool is_precise() {
  const std::string_view word = variable("TESSERA_PRECISION");
  check(word.empty() || word == "precise" || word == "fast", ErrorKind::value,
        "TESSERA_PRECISION must be 'precise' or 'fast', got '{}'.", word);
  return word == "precise";
}

bool is_autotuned() {
  const std::string_view word = variable("TESSERA_AUTOTUNE");
  check(word.empty() || word == "0" || word == "1", ErrorKind::value,
        "TESSERA_AUTOTUNE must be 0 or 1, got '{}'.", word);
  return word == "1";
}

CpuLevel level() {
  const char* name = "TESSERA_CPU_LEVEL";
  return variable(name).empty() ? machine_level() : usable_level(variable(name), name);
}

std::vector<std::string> disabled_kernels() {
  const char* variable = "TESSERA_DISABLE_KERNELS";
  std::vector<std::string> names = names_in(variable);
  for (const std::string& name : names) cpu::check_kernel_name(name, variable);
  return names;
}

std::vector<std::string> disabled_passes() {
  std::vector<std::string> names = names_in("TESSERA_DISABLE_PASSES");
  check_disabled(names, passes_of_a_compilation());
  return names;
}

}  // namespace

CompileOptions compile_options_of_environment() {
  CompileOptions options;
  options.disabled_passes = disabled_passes();
  options.target = {.level = level(),
                    .disabled_kernels = disabled_kernels(),
                    .precise = is_precise(),
                    .autotune = is_autotuned()};
  return options;
}

}  // namespace tessera
