#include "tessera/runtime/environment.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <string_view>

#include "tessera/backend/cpu/kernels/preference.h"
#include "tessera/base/error.h"
#include "tessera/base/thread_pool.h"
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

// As PopTorch reads it: what is no number above zero means all lines.
int64_t logged_lines() {
  const char* text = std::getenv("POPTORCH_MAX_GRAPH_LEN");
  return text ? std::max<int64_t>(0, std::strtol(text, nullptr, 10)) : 0;
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

CpuLevel cpu_level_of_environment() {
  const char* name = "TESSERA_CPU_LEVEL";
  return variable(name).empty() ? machine_level() : usable_level(variable(name), name);
}

int threads_of_environment() {
  const std::string_view text = variable("TESSERA_NUM_THREADS");
  if (text.empty()) return usable_cpus();
  int count = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), count);
  check(error == std::errc() && end == text.data() + text.size() && count >= 1 && count <= 1024,
        ErrorKind::value, "TESSERA_NUM_THREADS must be a number from 1 to 1024, got '{}'", text);
  return count;
}

std::string trace_path_of_environment() { return std::string(variable("TESSERA_TRACE")); }

CompileOptions compile_options_of_environment() {
  CompileOptions options;
  options.disabled_passes = disabled_passes();
  options.threads = threads_of_environment();
  options.logged_lines = logged_lines();
  options.target = {.level = cpu_level_of_environment(),
                    .disabled_kernels = disabled_kernels(),
                    .precise = is_precise(),
                    .autotune = is_autotuned()};
  return options;
}

}  // namespace tessera
