#include "tessera/runtime/environment.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <optional>

#include "tessera/base/error.h"
#include "tessera/base/thread_pool.h"

namespace tessera {
namespace {

// Sets a variable for as long as it lives.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) {
    if (const char* before = std::getenv(name)) before_ = before;
    setenv(name, value, 1);
  }
  ~Variable() { before_ ? setenv(name_, before_->c_str(), 1) : unsetenv(name_); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* name_;
  std::optional<std::string> before_;
};

std::string complaint() {
  try {
    compile_options_of_environment();
  } catch (const Error& error) {
    return error.message();
  }
  return "";
}

std::string complaint(const char* name, const char* value) {
  const Variable variable(name, value);
  return complaint();
}

TEST(Environment, EmptyVariablesSayNothing) {
  const Variable level("TESSERA_CPU_LEVEL", ""), kernels("TESSERA_DISABLE_KERNELS", ""),
      passes("TESSERA_DISABLE_PASSES", ""), precision("TESSERA_PRECISION", ""),
      autotune("TESSERA_AUTOTUNE", "");
  const CompileOptions options = compile_options_of_environment();
  EXPECT_EQ(print(options.target), print(cpu::Target{}));
  EXPECT_TRUE(options.disabled_passes.empty());
}

TEST(Environment, SaysHowManyThreads) {
  {
    const Variable unset("TESSERA_NUM_THREADS", "");
    EXPECT_EQ(threads_of_environment(), usable_cpus());
  }
  for (const char* wrong : {"0", "three", "2x", "-1", "100000"}) {
    const Variable variable("TESSERA_NUM_THREADS", wrong);
    EXPECT_THROW(threads_of_environment(), Error) << wrong;
  }
  const Variable variable("TESSERA_NUM_THREADS", "3");
  EXPECT_EQ(threads_of_environment(), 3);
  EXPECT_EQ(compile_options_of_environment().threads, 3);
}

TEST(Environment, SaysHowMuchIsLogged) {
  for (const char* all : {"", "0", "-1", "many"}) {
    const Variable variable("POPTORCH_MAX_GRAPH_LEN", all);
    EXPECT_EQ(compile_options_of_environment().logged_lines, 0) << all;
  }
  const Variable variable("POPTORCH_MAX_GRAPH_LEN", "12");
  EXPECT_EQ(compile_options_of_environment().logged_lines, 12);
}

TEST(Environment, SaysWhereATraceGoes) {
  EXPECT_EQ(trace_path_of_environment(), "");
  const Variable variable("TESSERA_TRACE", "steps.json");
  EXPECT_EQ(trace_path_of_environment(), "steps.json");
}

TEST(Environment, IsReadForEveryProgram) {
  const Variable level("TESSERA_CPU_LEVEL", "portable");
  {
    const Variable kernels("TESSERA_DISABLE_KERNELS", "packed, onednn_conv"),
        precision("TESSERA_PRECISION", "precise"), autotune("TESSERA_AUTOTUNE", "1"),
        passes("TESSERA_DISABLE_PASSES", "fuse_elementwise,remove_dead");
    const CompileOptions options = compile_options_of_environment();
    EXPECT_EQ(print(options.target),
              "portable, vectors of 4 floats, precise, autotuned, without packed, onednn_conv");
    EXPECT_EQ(options.disabled_passes,
              (std::vector<std::string>{"fuse_elementwise", "remove_dead"}));
  }
  EXPECT_EQ(print(compile_options_of_environment().target), "portable, vectors of 4 floats");
}

TEST(Environment, WhatItCannotMeanIsAnError) {
  EXPECT_EQ(complaint("TESSERA_CPU_LEVEL", "fast"),
            "TESSERA_CPU_LEVEL must be 'portable' or 'avx2', got 'fast'.");
  EXPECT_EQ(complaint("TESSERA_PRECISION", "exact"),
            "TESSERA_PRECISION must be 'precise' or 'fast', got 'exact'.");
  EXPECT_EQ(complaint("TESSERA_AUTOTUNE", "yes"), "TESSERA_AUTOTUNE must be 0 or 1, got 'yes'.");
  EXPECT_EQ(complaint("TESSERA_DISABLE_KERNELS", "packed,packd"),
            "TESSERA_DISABLE_KERNELS must name fast kernels, got 'packd'; similar names are "
            "packed, packed_linear; `tessera ops NAME` prints those of an operator.");
  EXPECT_EQ(complaint("TESSERA_DISABLE_PASSES", "nonsense")
                .find("the disabled passes (TESSERA_DISABLE_PASSES) must be passes that can be "
                      "turned off, got 'nonsense'"),
            0U);
}

}  // namespace
}  // namespace tessera
