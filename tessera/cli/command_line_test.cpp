#include "tessera/cli/command_line.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>

#include "tessera/base/cpu_level.h"
#include "tessera/files/executable_file.h"
#include "tessera/ops/registry.h"
#include "tessera/passes/read_graph.h"
#include "tessera/runtime/compile.h"

namespace tessera {
namespace {

struct Outcome {
  int code;
  std::string out, err;
};

Outcome run(std::vector<std::string> arguments, const std::string& input = "") {
  arguments.insert(arguments.begin(), "tessera");
  std::istringstream in(input);
  std::ostringstream out, err;
  const int code = run_command_line(arguments, in, out, err);
  return {code, out.str(), err.str()};
}

bool contains(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

size_t lines_of(const std::string& text) {
  return static_cast<size_t>(std::count(text.begin(), text.end(), '\n'));
}

constexpr const char* slow_graph = R"(graph "g" {
  input data "x" %0: f32[512,512]
  %1 = cumsum(%0) {dim = 0} : f32[512,512]
  output "y" %1
}
)";

constexpr const char* small_graph = R"(graph "g" {
  input data "x" %0: f32[2]
  %1 = copy(%0) : f32[2]
  %2 = exp(%0) : f32[2]
  output "0" %1
}
)";

TEST(CommandLine, ShowsVersionAndHelp) {
  EXPECT_EQ(run({"--version"}).code, 0);
  EXPECT_TRUE(run({"--version"}).out.starts_with("tessera 0."));
  const Outcome help = run({"--help"});
  EXPECT_EQ(help.code, 0);
  EXPECT_TRUE(contains(help.out, "ops"));
  EXPECT_TRUE(contains(run({"opt", "--help"}).out, "merge_duplicates"));
}

TEST(CommandLine, ShowsWhatIsNotNative) {
  const Outcome plain = run({"show"}, small_graph);
  EXPECT_EQ(plain.code, 0) << plain.err;
  EXPECT_TRUE(contains(plain.out, "2 nodes, 2 of them native"));
  const Outcome mixed = run({"show", "-"}, R"(graph "g" {
  input data "x" %0: f32[2]
  %1 = aten(%0) {arguments = "$0", overload = "aten::lgamma", results = "f32[2]"} : f32[2]
  output "0" %1
}
)");
  EXPECT_EQ(mixed.code, 0) << mixed.err;
  EXPECT_TRUE(contains(mixed.out, "1 nodes, 0 of them native"));
  EXPECT_TRUE(contains(mixed.out, "aten::lgamma"));
  EXPECT_EQ(run({"show", "/no/such/file"}).code, 1);
}

TEST(CommandLine, TimesAGraph) {
  const Outcome timed = run({"time", "--runs", "3", "--threads", "1"}, small_graph);
  EXPECT_EQ(timed.code, 0) << timed.err;
  EXPECT_TRUE(contains(timed.out, "median of 3 runs, 1 thread)"));
  EXPECT_TRUE(contains(timed.out, "everything is native"));
  EXPECT_EQ(run({"time", "--runs", "0"}, small_graph).code, 1);
  EXPECT_EQ(run({"time", "--threads", "0"}, small_graph).code, 1);
  const Outcome by_call = run({"time", "--calls", "--runs", "2"}, slow_graph);
  EXPECT_TRUE(contains(by_call.out, "us a step")) << by_call.out;
  EXPECT_TRUE(contains(by_call.out, "%"));
}

TEST(CommandLine, TraceWritesATimelineOrNothing) {
  const std::string path = testing::TempDir() + "tessera_trace_test.json";
  std::filesystem::remove(path);
  const Outcome traced = run({"trace", "--steps", "2", "--out", path}, slow_graph);
  EXPECT_EQ(traced.code, 0) << traced.err;
  std::ifstream file(path);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  EXPECT_TRUE(contains(text, "\"traceEvents\""));
  EXPECT_TRUE(contains(text, "\"ph\": \"X\""));
  EXPECT_TRUE(contains(text, "\"name\": \"caller\""));
  std::filesystem::remove(path);
  const Outcome lost = run({"trace", "--out", "/no/such/folder/t.json"}, small_graph);
  EXPECT_EQ(lost.code, 1);
  EXPECT_TRUE(
      contains(lost.err, "cannot write the timeline to '/no/such/folder/t.json': No such file"));
}

TEST(CommandLine, ChecksCallsAgainstTheReferenceKernels) {
  const Outcome checked = run({"check", "--steps", "1"}, small_graph);
  EXPECT_EQ(checked.code, 0) << checked.err;
  EXPECT_TRUE(contains(checked.out, "agree with the reference kernels, 1 step\n"));
  EXPECT_EQ(run({"check", "--steps", "0"}, small_graph).code, 1);
}

TEST(CommandLine, WhySaysWhatIsSlow) {
  EXPECT_TRUE(contains(run({"why"}, small_graph).out, "every large call has a fast kernel"));
  const Outcome outcome = run({"why"}, slow_graph);
  EXPECT_TRUE(contains(outcome.out, "cumsum")) << outcome.out << outcome.err;
  EXPECT_TRUE(contains(outcome.out, "the plain reference kernel")) << outcome.out;
}

TEST(CommandLine, WrongUsageIsTwo) {
  EXPECT_EQ(run({}).code, 2);
  EXPECT_EQ(run({"nonsense"}).code, 2);
  EXPECT_EQ(run({"opt"}, small_graph).code, 2);
  EXPECT_EQ(run({"opt", "--pass", "remove_dead", "--pipeline"}, small_graph).code, 2);
  EXPECT_FALSE(run({"nonsense"}).err.empty());
}

TEST(CommandLine, WrongUsageIsOneSentence) {
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{},
        {"bogus"},
        {"--bogus"},
        {"show", "a", "b"},
        {"show", "--bogus"},
        {"time", "--threads"},
        {"time", "--threads", "many"},
        {"time", "--threads", "99999999999999999999"},
        {"time", "--runs", "1.5"},
        {"opt"},
        {"opt", "--pass", "remove_dead", "--pipeline"}}) {
    const Outcome outcome = run(arguments, small_graph);
    EXPECT_EQ(outcome.code, 2);
    EXPECT_EQ(outcome.out, "");
    EXPECT_TRUE(outcome.err.starts_with("tessera: ")) << outcome.err;
    EXPECT_EQ(lines_of(outcome.err), 1U) << outcome.err;
  }
  EXPECT_TRUE(contains(run({"bogus"}).err, "there is no command 'bogus'; there are ops, show"));
}

TEST(CommandLine, NumbersOutOfRangeAreOneSentence) {
  for (const std::string command : {"time", "trace", "check"}) {
    for (const std::string threads : {"0", "-1", "100000"}) {
      const Outcome outcome = run({command, "--threads", threads}, small_graph);
      EXPECT_EQ(outcome.code, 1);
      EXPECT_EQ(outcome.err,
                "tessera: the number of threads must be from 1 to 1024, not " + threads + "\n");
    }
  }
  EXPECT_EQ(run({"time", "--runs", "-3"}, small_graph).err,
            "tessera: the number of steps must be at least 1, not -3\n");
}

TEST(CommandLine, WrongFilesAreOneSentence) {
  const std::string path = testing::TempDir() + "tessera_command_line_test.ir";
  const auto written = [&](const std::string& bytes) {
    std::ofstream(path, std::ios::binary) << bytes;
    return run({"show", path});
  };
  EXPECT_EQ(run({"show", "/"}).err, "tessera: cannot read '/': it is a folder\n");
  EXPECT_EQ(run({"show", "/no/such/file"}).err,
            "tessera: cannot read '/no/such/file': No such file or directory\n");
  EXPECT_TRUE(contains(written("").err, "' is empty; the text of a graph was wanted"));
  EXPECT_TRUE(contains(written(" \n\n").err, "' is empty; the text of a graph was wanted"));
  const std::string binary("\x7f\x45LF\0\1\2", 7);
  EXPECT_TRUE(contains(written(binary).err, "' is no text; the text of a graph was wanted"));
  EXPECT_TRUE(contains(run({"show"}, binary).err, "the standard input is no text"));
  for (const std::string& text : {std::string(1000000, 'x'), std::string("h\xe4\xff\xfe")}) {
    const Outcome outcome = written(text);
    EXPECT_EQ(outcome.code, 1);
    EXPECT_EQ(lines_of(outcome.err), 1U);
    EXPECT_LT(outcome.err.size(), 300U) << outcome.err.substr(0, 300);
  }
  std::filesystem::remove(path);
}

TEST(CommandLine, AWrongEnvironmentIsOneSentence) {
  setenv("TESSERA_NUM_THREADS", "many", 1);
  const Outcome outcome = run({"time"}, small_graph);
  unsetenv("TESSERA_NUM_THREADS");
  EXPECT_EQ(outcome.code, 1);
  EXPECT_EQ(outcome.err,
            "tessera: TESSERA_NUM_THREADS must be a number from 1 to 1024, got 'many'\n");
}

TEST(CommandLine, ListsEveryOperator) {
  const Outcome text = run({"ops"});
  EXPECT_EQ(text.code, 0);
  EXPECT_EQ(lines_of(text.out), all_ops().size() + 1);
  const Outcome markdown = run({"ops", "--markdown"});
  EXPECT_EQ(lines_of(markdown.out), all_ops().size() + 2);
  EXPECT_TRUE(contains(markdown.out, "| `exp` |"));
}

TEST(CommandLine, DescribesOneOperatorByEitherName) {
  const Outcome ours = run({"ops", "add"});
  EXPECT_EQ(ours.code, 0);
  EXPECT_TRUE(contains(ours.out, "attribute alpha: number, 1.0 unless given"));
  EXPECT_EQ(run({"ops", "add.Tensor"}).out, ours.out);
  const Outcome none = run({"ops", "nonsense"});
  EXPECT_EQ(none.code, 1);
  EXPECT_EQ(none.err,
            "tessera: there is no operator 'nonsense'; `tessera ops` lists those there are\n");
}

// Whatever of them this machine has, they stand in the order of preference.
TEST(CommandLine, PrintsTheKernelsOfAnOperatorInOrder) {
  const std::string text = run({"ops", "conv"}).out;
  EXPECT_TRUE(contains(text, "  kernels, of which the first that applies is taken:\n") ||
              contains(text, "  kernel: reference\n"));
  if (machine_level() == CpuLevel::portable) return;
  size_t at = 0;
  for (const char* line : {"    narrow                      avx2; chooses layouts\n",
                           "    batch8                      avx2; chooses layouts\n",
                           "    few_channels                avx2; plain layouts\n",
                           "    winograd_4                  avx2; chooses layouts; goes on with ",
                           "    winograd_2                  avx2; chooses layouts; goes on with ",
                           "    reference                   any use\n"}) {
    const size_t next = text.find(line);
    ASSERT_NE(next, std::string::npos) << line << text;
    EXPECT_GT(next, at) << line;
    at = next;
  }
  EXPECT_TRUE(contains(run({"ops", "exp"}).out, "  kernel: reference\n"));
}

TEST(CommandLine, RunsPasses) {
  const Outcome one = run({"opt", "--pass", "remove_dead", "-"}, small_graph);
  EXPECT_EQ(one.code, 0);
  EXPECT_TRUE(contains(one.out, "copy"));
  EXPECT_FALSE(contains(one.out, "exp"));
  const Outcome two = run({"opt", "--pass", "remove_dead", "--pass", "canonicalize"}, small_graph);
  EXPECT_FALSE(contains(two.out, "copy"));
  EXPECT_EQ(run({"opt", "--pipeline"}, small_graph).out, two.out);
  const Outcome skipped =
      run({"opt", "--pipeline", "--skip", "canonicalize", "--report"}, small_graph);
  EXPECT_TRUE(contains(skipped.out, "copy"));
  EXPECT_TRUE(contains(skipped.err, "merge_duplicates"));
}

TEST(CommandLine, RunsRewritesOfTheCpu) {
  constexpr const char* graph = R"(graph "g" {
  input data "x" %0: f32[2]
  %1 = exp(%0) : f32[2]
  %2 = neg(%1) : f32[2]
  output "0" %2
}
)";
  const Outcome one = run({"opt", "--pass", "fuse_elementwise", "--dump"}, graph);
  EXPECT_EQ(one.code, 0) << one.err;
  EXPECT_TRUE(contains(one.out, "map(")) << one.out;
  EXPECT_EQ(one.err, "// after fuse_elementwise\n" + one.out);
  EXPECT_TRUE(contains(run({"opt", "--lower"}, graph).out, "map("));
  const Outcome apart = run({"opt", "--lower", "--skip", "fuse_elementwise", "--report"}, graph);
  EXPECT_EQ(apart.out, graph);
  EXPECT_TRUE(contains(apart.err, "recompute")) << apart.err;
}

TEST(CommandLine, BadInputIsOneSentence) {
  for (const auto& [arguments, input] :
       std::vector<std::pair<std::vector<std::string>, std::string>>{
           {{"opt", "--pipeline"}, "garbage"},
           {{"opt", "--pipeline"}, "graph \"g\" {\n%0 = nonsense() : f32[]\n}\n"},
           {{"opt", "--pipeline", "/no/such/file"}, ""},
           {{"opt", "--pipeline", "/"}, ""},
           {{"opt", "--pass", "nonsense"}, small_graph},
           {{"opt", "--pipeline", "--skip", "nonsense"}, small_graph},
           {{"opt", "--pipeline", "--skip", "fuse_losses"}, small_graph},
           {{"opt", "--pipeline", "--skip", "decompose"}, small_graph}}) {
    const Outcome outcome = run(arguments, input);
    EXPECT_EQ(outcome.code, 1);
    EXPECT_EQ(outcome.out, "");
    EXPECT_TRUE(outcome.err.starts_with("tessera: ")) << outcome.err;
    EXPECT_EQ(lines_of(outcome.err), 1U) << outcome.err;
  }
}

constexpr const char* training_graph = R"(graph "lesson" {
  input data "x" %0: f32[64]
  input hyperparameter "n" %1: f32[2]
  state parameter "w" %2: f32[64] update %4
  %3 = mul(%0, %2) : f32[64]
  update %4 = sgd(%2, %3, _, _, %1, %1, %1, %1) {nesterov = false} : f32[64]
}
)";

TEST(CommandLine, PricesManyNodes) {
  const Outcome sizes = run({"scale", "--step-time", "12.5ms", "--latency", "20us", "--bandwidth",
                             "10Gbit/s", "--bucket", "4MiB", "--bucket", "1MiB", "--nodes", "1,2"});
  EXPECT_EQ(sizes.code, 0) << sizes.err;
  EXPECT_TRUE(contains(sizes.out, "gradients: 5 MiB in 2 buckets, as given\n")) << sizes.out;
  EXPECT_TRUE(contains(sizes.out, "assumed to be ready evenly over the last two thirds"));
  const Outcome program =
      run({"scale", "--step-time", "1ms", "--network", "loopback", "-"}, training_graph);
  EXPECT_EQ(program.code, 0) << program.err;
  EXPECT_TRUE(contains(program.out, "gradients: 256 B in 1 bucket, of program 'lesson'\n"));
  const Outcome json = run({"scale", "--json", "--strong", "--no-overlap", "--step-time", "1ms",
                            "--network", "slingshot", "--parameters", "1M", "--nodes", "2"});
  EXPECT_TRUE(contains(json.out, "\"overlap\": false,\n  \"strong\": true")) << json.out;
  EXPECT_TRUE(contains(run({"scale", "--networks"}).out, "\nethernet10  "));
}

// A figure that is given replaces that of the name.
TEST(CommandLine, NetworksMayBeChanged) {
  const Outcome outcome = run({"scale", "--step-time", "1ms", "--network", "ethernet10",
                               "--latency", "5us", "--parameters", "1M"});
  EXPECT_TRUE(contains(outcome.out, "network: 5 us, 10 Gbit/s;")) << outcome.out << outcome.err;
}

TEST(CommandLine, WrongPricesAreOneSentence) {
  const std::vector<std::string> step = {"scale", "--step-time", "12.5ms"};
  const auto outcome_of = [&](std::vector<std::string> more) {
    more.insert(more.begin(), step.begin(), step.end());
    Outcome outcome = run(more, small_graph);
    EXPECT_EQ(outcome.out, "");
    EXPECT_EQ(lines_of(outcome.err), 1U) << outcome.err;
    return outcome;
  };
  for (const auto& [more, sentence] : std::vector<std::pair<std::vector<std::string>, std::string>>{
           {{"--parameters", "1M"}, "the network is missing: --network NAME, or --latency and"},
           {{"--latency", "20", "--parameters", "1M"}, "--latency: '20' is no time; a number"},
           {{"--network", "loopback"}, "the gradients must be given once: a FILE, --bucket"},
           {{"--network", "loopback", "--parameters", "1M", "-"}, "the gradients must be given"},
           {{"--network", "loopback", "--bucket", "4Mb"}, "'4Mb' is no number of bytes"},
           {{"--nodes", "2,1"}, "--nodes: '2,1' is no list of nodes"}}) {
    const Outcome outcome = outcome_of(more);
    EXPECT_EQ(outcome.code, 2) << outcome.err;
    EXPECT_TRUE(contains(outcome.err, sentence)) << outcome.err;
  }
  EXPECT_TRUE(contains(run({"scale"}).err, "--step-time must say what a step takes, as 12.5ms"));
  for (const auto& [more, sentence] : std::vector<std::pair<std::vector<std::string>, std::string>>{
           {{"--network", "pigeons", "--parameters", "1M"}, "there is no network 'pigeons'"},
           {{"--network", "loopback", "-"}, "program 'g' has no gradients to add up"},
           {{"--network", "loopback", "/no/such/file"}, "cannot read '/no/such/file'"}}) {
    const Outcome outcome = outcome_of(more);
    EXPECT_EQ(outcome.code, 1) << outcome.err;
    EXPECT_TRUE(contains(outcome.err, sentence)) << outcome.err;
  }
}

class InspectedFile : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::vector<float> weight = {1, 2};
    const std::string_view part = "not ours";
    write_executable(path_, {.executable = executable_.get(),
                             .states = {std::as_bytes(std::span(weight))},
                             .hyperparameters = {0.5},
                             .rng = RngState{.seed = 42, .step = 3},
                             .metadata = {{"note", "for\x1b you"}},
                             .parts = {{"module", std::as_bytes(std::span(part))}}});
  }
  void TearDown() override { std::filesystem::remove(path_); }

  const std::string path_ =
      std::filesystem::temp_directory_path() / ("tessera_inspected_" + std::to_string(getpid()));
  const std::shared_ptr<const Executable> executable_ = compile(read_graph(R"(graph "lesson" {
  input data "x" %0: f32[2]
  input hyperparameter "rate" %1: f32[]
  state parameter "w" %2: f32[2] update %4
  %3 = mul(%0, %2) : f32[2]
  update %4 = mul(%2, %1) : f32[2]
  output "y" %3
}
)"));
};

// spec: 9 inspect
TEST_F(InspectedFile, IsToldInLines) {
  const Outcome told = run({"inspect", path_});
  EXPECT_EQ(told.code, 0) << told.err;
  for (const char* line :
       {", format 1, written by tessera 0.", "program 'lesson': 2 nodes, gradient accumulation 1",
        "compiled for ", "  x  f32[2]\n", "  y  f32[2], all\n",
        "states, parameter: 1 tensor, 2 numbers, 8 B, with values\n  w  f32[2], 8 B\n",
        "  rate  0.5\n", "random numbers: seed 42, of micro-batch 3\n", "  note  for  you\n",
        "  module  8 B\n", "constants: 0, 0 B\n", "  state/0      8 B at "}) {
    EXPECT_TRUE(contains(told.out, line)) << line << "\n" << told.out;
  }
}

TEST_F(InspectedFile, IsToldAsJson) {
  const Outcome told = run({"inspect", "--json", path_});
  EXPECT_EQ(told.code, 0) << told.err;
  for (const char* part :
       {R"("format": 1,)", R"("name": "lesson",)", R"("parameters": 2,)", R"("has_values": true,)",
        R"({"name": "x", "dtype": "f32", "shape": [2], "given_as": "f32"})",
        R"("optimizer": {"rate": 0.5})", R"("parts": {"module": 8})", R"(\u001b)",
        R"("random": {"seed": 42, "step": 3})"}) {
    EXPECT_TRUE(contains(told.out, part)) << part << "\n" << told.out;
  }
}

TEST_F(InspectedFile, IsPricedWhereItTrains) {
  const std::vector<std::string> arguments = {"scale",     "--step-time", "1ms",
                                              "--network", "loopback",    path_};
  EXPECT_TRUE(contains(run(arguments).err, "program 'lesson' has no gradients"))
      << run(arguments).err;
  const auto trained = compile(read_graph(training_graph));
  write_executable(path_, {.executable = trained.get()});
  EXPECT_TRUE(contains(run(arguments).out, "256 B in 1 bucket, of program 'lesson'"))
      << run(arguments).err;
}

TEST_F(InspectedFile, IsRefusedWhereItIsDamaged) {
  std::filesystem::resize_file(path_, std::filesystem::file_size(path_) - 1);
  const Outcome cut = run({"inspect", path_});
  EXPECT_EQ(cut.code, 1);
  EXPECT_TRUE(contains(cut.err, "is damaged: it was cut short")) << cut.err;
  std::ofstream(path_) << small_graph;
  const Outcome other = run({"inspect", path_});
  EXPECT_TRUE(contains(other.err, "is no file of Tessera's")) << other.err;
  EXPECT_EQ(run({"inspect"}).code, 2);
}

}  // namespace
}  // namespace tessera
