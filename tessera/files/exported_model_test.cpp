#include "tessera/files/exported_model.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "tessera/base/error.h"
#include "tessera/passes/read_graph.h"

namespace tessera {
namespace {

class ExportedModels : public ::testing::Test {
 protected:
  void SetUp() override { std::filesystem::remove(path_); }
  void TearDown() override { std::filesystem::remove(path_); }

  // Adds what stands at an index of a table; two micro-batches a call.
  void write(bool with_values) {
    Graph graph = read_graph(R"(graph "table" {
  input data "x" %0: f32[2]
  input data "at" %1: i32[2]
  state parameter "table" %2: f32[4]
  %3 = index_select(%2, %1) {dim = 0} : f32[2]
  %4 = add(%0, %3) : f32[2]
  output "y" %4
}
)");
    StepSignature signature = signature_of(graph);
    signature.device_iterations = 2;
    signature.inputs[1].host = DType::i64;
    const std::byte answer[] = {std::byte{42}};
    signature.returned.push_back(
        {.type = {DType::u8, {1}},
         .constant = std::make_shared<const std::vector<std::byte>>(answer, answer + 1)});
    const auto executable = compile(std::move(graph), std::move(signature));
    const std::vector<float> table = {10, 20, 30, 40};
    ExecutableContents contents{.executable = executable.get()};
    if (with_values) contents.states = {std::as_bytes(std::span(table))};
    write_executable(path_, contents);
  }

  std::vector<ModelOutput> run(ExportedModel& model, const std::vector<float>& x,
                               const std::vector<int64_t>& at) {
    const std::span<const std::byte> inputs[] = {std::as_bytes(std::span(x)),
                                                 std::as_bytes(std::span(at))};
    return model.run(inputs);
  }

  std::string complaint(const std::vector<float>& x, const std::vector<int64_t>& at) {
    try {
      ExportedModel model(path_, 1);
      run(model, x, at);
      return "";
    } catch (const Error& error) {
      return error.message();
    }
  }

  const std::string path_ =
      std::filesystem::temp_directory_path() / ("tessera_exported_" + std::to_string(getpid()));
};

// spec: 9 run without PyTorch
TEST_F(ExportedModels, RunWholeCallsInTheTypesOfTheirCallers) {
  write(true);
  ExportedModel model(path_, 1);
  EXPECT_EQ(to_string(model.inputs()[0].type), "f32[4]");
  EXPECT_EQ(to_string(model.inputs()[1].type), "i64[4]");
  EXPECT_EQ(model.input_bytes(1), 32U);
  const auto returned = run(model, {1, 2, 3, 4}, {0, 1, 2, 3});
  ASSERT_EQ(returned.size(), 2U);
  const auto y = returned[0].as<float>();
  EXPECT_EQ(std::vector<float>(y.begin(), y.end()), (std::vector<float>{11, 22, 33, 44}));
  EXPECT_EQ(to_string(returned[0].type), "f32[4]");
  EXPECT_EQ(returned[1].bytes, std::vector<std::byte>{std::byte{42}});
}

TEST_F(ExportedModels, SayWhatTheyWanted) {
  write(true);
  EXPECT_EQ(complaint({1, 2}, {0, 0, 0, 0}), "input 'x' is f32[4], which has 16 bytes; 8 came");
  EXPECT_EQ(complaint({1, 2, 3, 4}, {0, 0, 0, int64_t{1} << 40}),
            "input 'at' has the value 1099511627776, which needs more than 32 bits");
  EXPECT_NE(complaint({1, 2, 3, 4}, {0, 0, 0, 4}), "");
  write(false);
  EXPECT_EQ(
      complaint({1, 2, 3, 4}, {0, 0, 0, 0}),
      "'" + path_ +
          "' holds a program without the values of its 1 states, and cannot be run by itself");
}

TEST_F(ExportedModels, OfSeveralReplicasTakeWhatEachReads) {
  Graph graph = read_graph(R"(graph "sum" {
  input data "x" %0: f32[]
  state parameter "w" %1: f32[]
  %2 = add(%0, %1) : f32[]
  output "y" %2
}
)");
  StepSignature signature = signature_of(graph);
  signature.replicas = 2;
  signature.grouped_states.push_back({.state = 0, .groups = {.size = 1}});
  const auto executable = compile(std::move(graph), std::move(signature));
  const std::vector<float> w = {10, 20};
  write_executable(path_,
                   {.executable = executable.get(), .states = {std::as_bytes(std::span(w))}});
  EXPECT_EQ(ExecutableFile(path_).states()[0].copies, 2);
  ExportedModel model(path_, 1);
  EXPECT_EQ(to_string(model.inputs()[0].type), "f32[2]");
  const std::vector<float> x = {1, 2};
  const std::span<const std::byte> inputs[] = {std::as_bytes(std::span(x))};
  const auto returned = model.run(inputs);
  const auto y = returned[0].as<float>();
  EXPECT_EQ(std::vector<float>(y.begin(), y.end()), (std::vector<float>{11, 22}));
}

TEST_F(ExportedModels, AreRefusedWhereACallTakesMoreThanThereIs) {
  Graph graph = read_graph(R"(graph "copy" {
  input data "x" %0: f32[65536]
  %1 = neg(%0) : f32[65536]
  output "y" %1
}
)");
  StepSignature signature = signature_of(graph);
  signature.device_iterations = (int64_t{1} << 31) - 1;
  const auto executable = compile(std::move(graph), std::move(signature));
  write_executable(path_, {.executable = executable.get()});
  EXPECT_EQ(complaint({}, {}),
            "2147483647 micro-batches of f32[65536] are more than any memory has");
}

}  // namespace
}  // namespace tessera
