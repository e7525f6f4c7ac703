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

// spec: 9 file format
// spec: 9 opaque parts
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

// Reads everything that is in a file; the sentence where it is refused, empty where it is not.
std::string complaint(std::span<const std::byte> bytes) {
  try {
    const ExecutableFile file(Container("a file", bytes, nullptr));
    file.container().check_all();
    Session session(load_executable(file), 1);
    restore(session, file);
    return "";
  } catch (const Error& error) {
    return error.message();
  }
}

// spec: 9 damaged file
TEST_F(ExecutableFiles, AreRefusedWhereverTheyAreCut) {
  const std::vector<std::byte> bytes = executable_bytes(contents());
  EXPECT_EQ(complaint(bytes), "");
  for (size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_NE(complaint(std::span(bytes).first(size)), "") << size;
  }
}

TEST_F(ExecutableFiles, AreRefusedWhateverByteIsChanged) {
  std::vector<std::byte> bytes = executable_bytes(contents());
  for (std::byte& byte : bytes) {
    byte ^= std::byte{0x20};
    EXPECT_NE(complaint(bytes), "") << &byte - bytes.data();
    byte ^= std::byte{0x20};
  }
}

// A file of the same sections, of which one is another; `name` alone is left out.
std::vector<std::byte> with(std::span<const std::byte> bytes, std::string_view name,
                            std::optional<std::string> text) {
  const Container container("a file", bytes, nullptr);
  std::vector<Section> sections;
  for (const Container::Entry& entry : container.entries()) {
    if (entry.name != name) {
      sections.push_back({entry.name, container.section(entry.name)});
    } else if (text) {
      sections.push_back({entry.name, std::as_bytes(std::span(*text))});
    }
  }
  return container_bytes(sections);
}

TEST_F(ExecutableFiles, AreRefusedWherePartsDoNotFit) {
  const std::vector<std::byte> bytes = executable_bytes(contents());
  const Container whole("a file", bytes, nullptr);
  const auto replaced = [&](std::string_view section, std::string_view from, std::string_view to) {
    std::string text(whole.text(section));
    text.replace(text.find(from), from.size(), to);
    return complaint(with(bytes, section, text));
  };
  struct Case {
    std::string came, said;
  };
  const std::vector<Case> cases = {
      {complaint(with(bytes, "graph", std::nullopt)), "'a file' has no section 'graph'"},
      {complaint(with(bytes, "graph", "graph \"step\" {")), "line 1: "},
      {complaint(with(bytes, "blob/0", std::nullopt)), "there is no bytes[0]: 0 came"},
      {complaint(with(bytes, "blob/0", "four")), "constant"},
      {complaint(with(bytes, "state/1", "too much")),
       "the value of 'seen', 1 times f32[], has 8 bytes"},
      {complaint(with(bytes, "state/0", std::nullopt)), "'a file' has no section 'state/0'"},
      {complaint(with(bytes, "program", "")), "it has 0 states, its program has 2"},
      {replaced("program", "\"seen\"", "\"heard\""), "state 1 is 'heard', f32[]; in its program"},
      {replaced("program", "copies = 1", "copies = 2"),
       "the value of 'w', 2 times f32[3], has 12 bytes, not 2 times 12"},
      {replaced("program", "hyperparameter {name = \"rate\"", "hyperparameter {name = \"other\""),
       "its hyper-parameters are not those of its program"},
      {replaced("program", "level = \"", "level = \"z80"), "is no level"},
      {replaced("program", "merge_duplicates", "merge_everything"), "merge_everything"},
      {replaced("signature", "shape = [2, 3]", "shape = [2, 4]"), "Input 0 of the signature"},
      {replaced("metadata", "entry", "surprise"), "line 1 of the metadata: 'surprise' is no entry"},
      {replaced("metadata", "\"options\"", "\"name\""), "there are two entries 'name'"},
  };
  for (const Case& wrong : cases) {
    EXPECT_NE(wrong.came.find(wrong.said), std::string::npos)
        << "wanted: " << wrong.said << "\ncame: " << wrong.came;
  }
}

// The memory of whoever asks is not that of the program that he asks about.
TEST_F(ExecutableFiles, OfHugeProgramsAreReadWithoutTheirMemory) {
  const auto huge = compile(read_graph(R"(graph "huge" {
  input data "x" %0: f32[34359738368]
  %1 = relu(%0) : f32[34359738368]
  output "y" %1
}
)"));
  const auto bytes = executable_bytes({.executable = huge.get()});
  const ExecutableFile file(Container("a file", bytes, nullptr));
  EXPECT_EQ(file.signature().inputs[0].type.shape, Shape{int64_t{1} << 35});
  EXPECT_NE(complaint(bytes).find("MB of memory in one piece"), std::string::npos);
}

}  // namespace
}  // namespace tessera
