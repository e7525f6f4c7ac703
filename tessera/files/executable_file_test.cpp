#include "tessera/files/executable_file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "tessera/base/error.h"
#include "tessera/ir/text.h"
#include "tessera/ops/builder.h"
#include "tessera/passes/read_graph.h"

namespace tessera {
namespace {

constexpr std::string_view training_step = R"(graph "step" {
  input data "x" %0: f32[2,3]
  input hyperparameter "rate" %1: f32[]
  state parameter "w" %2: f32[3] update %7
  state buffer "seen" %3: f32[] micro_batch %9
  %4 = constant() {dtype = f32, shape = [3], data = bytes"0000803f0000004000004040"} : f32[3]
  %5 = mul(%0, %2) : f32[2,3]
  %6 = add(%5, %4) : f32[2,3]
  update %10 = mul(%4, %1) : f32[3]
  update %7 = sub(%2, %10) : f32[3]
  %8 = fill() {dtype = f32, shape = [], value = 1.0} : f32[]
  %9 = add(%3, %8) : f32[]
  output "y" %6
}
)";

template <typename T>
std::span<const std::byte> bytes_of(const std::vector<T>& values) {
  return std::as_bytes(std::span(values));
}

class ExecutableFiles : public ::testing::Test {
 protected:
  void TearDown() override { std::filesystem::remove(path_); }

  ExecutableContents contents() {
    return {.executable = executable_.get(),
            .options = options_,
            .states = {bytes_of(w_), bytes_of(seen_)},
            .hyperparameters = {0.125},
            .rng = RngState{.seed = ~uint64_t{0}, .step = 7},
            .metadata = {{"name", "a model"}, {"options", "{\"a\": 1}\n\"quoted\""}},
            .parts = {{"module", as_part("pickled")}, {"empty", {}}}};
  }

  static std::span<const std::byte> as_part(std::string_view text) {
    return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
  }

  const std::string path_ =
      std::filesystem::temp_directory_path() / ("tessera_executable_" + std::to_string(getpid()));
  const std::vector<float> w_ = {1, 2, 3}, seen_ = {4};
  const CompileOptions options_{.disabled_passes = {"merge_duplicates"},
                                .halves = {.rounding = Rounding::stochastic},
                                .target = {.disabled_kernels = {"onednn"}, .precise = true}};
  const std::shared_ptr<const Executable> executable_ = compile(read_graph(training_step));
};

TEST_F(ExecutableFiles, GiveBackWhatWasWritten) {
  write_executable(path_, contents());
  const ExecutableFile file(path_);
  EXPECT_EQ(print(file.graph()), print(executable_->graph()));
  EXPECT_EQ(file.signature(), executable_->signature());
  EXPECT_EQ(file.options().disabled_passes, options_.disabled_passes);
  EXPECT_EQ(file.options().halves.rounding, Rounding::stochastic);
  EXPECT_EQ(file.options().target.disabled_kernels, options_.target.disabled_kernels);
  EXPECT_EQ(file.options().target.level, options_.target.level);
  EXPECT_TRUE(file.options().target.precise);
  EXPECT_EQ(file.metadata(), contents().metadata);
  EXPECT_EQ(file.part_names(), (std::vector<std::string>{"empty", "module"}));
  EXPECT_EQ(file.part("module").size(), 7U);
  EXPECT_TRUE(file.part("empty").empty());
  EXPECT_EQ(file.rng(), contents().rng);
  ASSERT_EQ(file.states().size(), 2U);
  EXPECT_EQ(file.states()[1].kind, StateKind::buffer);
}

TEST_F(ExecutableFiles, RunAsWhatTheyWereMadeOf) {
  write_executable(path_, contents());
  const ExecutableFile file(path_);
  Session session(load_executable(file), 1);
  restore(session, file);
  const std::vector<float> x = {1, 1, 1, 2, 2, 2};
  std::vector<float> y(6);
  session.run(
      {.inputs = {bytes_of(x).data()}, .outputs = {{reinterpret_cast<std::byte*>(y.data())}}});
  EXPECT_EQ(y, (std::vector<float>{2, 4, 6, 3, 6, 9}));
  std::vector<float> w(3), seen(1);
  session.read_state(0, std::as_writable_bytes(std::span(w)));
  session.read_state(1, std::as_writable_bytes(std::span(seen)));
  EXPECT_EQ(w, (std::vector<float>{0.875, 1.75, 2.625}));
  EXPECT_EQ(seen, std::vector<float>{5});
  EXPECT_EQ(session.rng().seed, ~uint64_t{0});
}

}  // namespace
}  // namespace tessera
