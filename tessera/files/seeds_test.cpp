// The files that the fuzzer of tests/readers begins with must be good ones, or it learns nothing
// from them. After a change of the format:
//   TESSERA_WRITE_SEEDS=1 build/tests/tessera_files_test --gtest_filter=Seeds.*
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "tessera/base/checkout_for_test.h"
#include "tessera/base/replace_file.h"
#include "tessera/base/text_files_for_test.h"
#include "tessera/files/executable_file.h"
#include "tessera/ir/text.h"

namespace tessera {
namespace {

std::filesystem::path folder_of(std::string_view reader) {
  return source_folder() / "tests/readers/seeds" / reader;
}

std::vector<std::string> names_of_graphs() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder_of("graph"))) {
    names.push_back(entry.path().filename());
  }
  return names;
}

// With something in each of its parts.
void write_seeds(const std::string& name) {
  const Graph graph = read_graph(text_of_file(folder_of("graph") / name));
  StepSignature signature = signature_of(graph);
  signature.structure = "(<tensor>)";
  signature.device_iterations = 2;
  const std::byte one[4] = {std::byte{1}};
  const auto blob = std::make_shared<const std::vector<std::byte>>(one, one + 4);
  signature.returned.push_back({.type = {DType::i32, {}}, .constant = blob, .is_new = true});
  signature.anchors.push_back({.name = "mine", .tensor = "y"});
  if (!signature.inputs.empty()) signature.written_back.push_back({0, 0});
  CompileOptions options;
  options.target = {.level = CpuLevel::portable, .disabled_kernels = {"none"}};
  const auto executable = compile(graph, signature, options);
  std::vector<std::vector<std::byte>> values;
  for (const StateInfo& state : executable->states()) {
    values.emplace_back(static_cast<size_t>(bytes(state.type)), std::byte{0x3c});
  }
  const ExecutableContents contents{
      .executable = executable.get(),
      .options = options,
      .states = {values.begin(), values.end()},
      .hyperparameters = std::vector<double>(executable->hyperparameters().size(), 0.5),
      .rng = RngState{.seed = 1, .step = 2},
      .metadata = {{"name", name}},
      .parts = {{"opaque", one}}};
  write_executable(folder_of("executable") / name, contents);
  ASSERT_TRUE(replace_file(folder_of("signature") / name, print(executable->signature())));
}

TEST(Seeds, CanBeReadWhole) {
  const char* write = std::getenv("TESSERA_WRITE_SEEDS");
  const std::vector<std::string> names = names_of_graphs();
  EXPECT_GE(names.size(), 5U);
  for (const std::string& name : names) {
    SCOPED_TRACE(name);
    if (write && *write) write_seeds(name);
    const ExecutableFile file(folder_of("executable") / name);
    file.container().check_all();
    Session session(load_executable(file), 1);
    restore(session, file);
    EXPECT_EQ(parse_signature(text_of_file(folder_of("signature") / name)).outputs,
              file.signature().outputs);
  }
}

}  // namespace
}  // namespace tessera
