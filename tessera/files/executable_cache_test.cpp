#include "tessera/files/executable_cache.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <stdexcept>

#include "tessera/base/file_lock.h"
#include "tessera/base/log.h"
#include "tessera/base/text_files_for_test.h"
#include "tessera/ops/builder.h"
#include "tessera/runtime/program_key.h"
#include "tessera/runtime/session.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

Graph doubling(int line = 3) {
  Graph graph;
  Builder build(graph);
  const ValueId x = graph.add_input(InputKind::data, "x", {DType::f32, {4}});
  const ValueId factor = graph.add_state(StateKind::parameter, "w", {DType::f32, {4}});
  graph.add_output("0", build.add("tanh", {build.add("mul", {x, factor})}));
  for (int32_t i = 0; i < graph.node_count(); ++i) {
    graph.node(NodeId{i}).origin = {.file = "model.py", .line = line + i, .module = "net"};
  }
  return graph;
}

CacheRequest request_for(Graph graph, const CompileOptions& options = {}) {
  CacheRequest request;
  request.graph = std::move(graph);
  request.options = options;
  request.signature = signature_of(request.graph);
  request.program = program_key(request.graph, request.signature);
  return request;
}

std::vector<float> results_of(const std::shared_ptr<const Executable>& executable) {
  Session session(executable, 1);
  const std::vector<float> x = {1, 2, 3, 4}, w = {2, 2, 2, 2};
  std::vector<float> y(4);
  session.write_state(0, std::as_bytes(std::span(w)));
  RunRequest request;
  request.inputs = {std::as_bytes(std::span(x)).data()};
  request.outputs = {{std::as_writable_bytes(std::span(y)).data()}};
  session.run(request);
  return y;
}

class ExecutableCaches : public ::testing::Test {
 protected:
  void SetUp() override {
    fs::create_directory(folder_);
    limit_repeated_logs(std::nullopt);
  }
  void TearDown() override { fs::remove_all(folder_); }

  CacheResult found(const CacheRequest& request) {
    return ExecutableCache(folder_).find_or_compile(request);
  }
  CacheResult found() { return found(request_for(doubling())); }

  // What is logged at the usual level.
  template <typename Work>
  std::string warnings_of(const Work& work) {
    testing::internal::CaptureStderr();
    work();
    return testing::internal::GetCapturedStderr();
  }
  static size_t lines(const std::string& text) {
    return static_cast<size_t>(std::count(text.begin(), text.end(), '\n'));
  }

  std::vector<fs::path> files() const {
    std::vector<fs::path> list;
    for (const auto& entry : fs::directory_iterator(folder_)) list.push_back(entry.path());
    return list;
  }

  const fs::path folder_ =
      fs::temp_directory_path() / ("tessera_cache_" + std::to_string(getpid()));
  const std::vector<float> expected_ = results_of(compile(doubling()));
};

TEST_F(ExecutableCaches, FindWhatWasCompiledBefore) {
  const CacheResult first = found(), second = found();
  EXPECT_TRUE(!first.is_hit && second.is_hit);
  EXPECT_GT(second.compile_seconds, 0);
  EXPECT_EQ(results_of(first.executable), expected_);
  EXPECT_EQ(results_of(second.executable), expected_);
  ASSERT_EQ(files().size(), 1U) << "and no lock is left";
  EXPECT_EQ(files()[0].extension(), ".poptorch");
}

TEST_F(ExecutableCaches, OtherProgramsAreOthers) {
  found();
  CompileOptions options;
  options.threads = 5;
  EXPECT_TRUE(found(request_for(doubling(), options)).is_hit) << "threads do not matter";
  options.target.precise = true;
  EXPECT_FALSE(found(request_for(doubling(), options)).is_hit);
  Graph other = doubling();
  other.add_output("1", ValueId{0});
  EXPECT_FALSE(found(request_for(std::move(other))).is_hit);
  EXPECT_EQ(files().size(), 3U);
}

TEST_F(ExecutableCaches, KnowTheLinesAndTheNameOfToday) {
  found();
  Graph moved = doubling(30);
  moved.name = "renamed";
  const CacheResult result = found(request_for(std::move(moved)));
  ASSERT_TRUE(result.is_hit);
  EXPECT_EQ(result.executable->graph().name, "renamed");
  for (const Node& node : result.executable->graph().nodes()) EXPECT_GE(node.origin.line, 30);
}

TEST_F(ExecutableCaches, MakeTheirFolder) {
  const std::string below = folder_ / "a" / "b";
  const std::string said =
      warnings_of([&] { ExecutableCache(below).find_or_compile(request_for(doubling())); });
  EXPECT_NE(said.find("Specified directory not found. Creating \"" + below + "\" directory"),
            std::string::npos)
      << said;
  EXPECT_EQ(lines(said), 1U);
  const std::string again = warnings_of(
      [&] { EXPECT_TRUE(ExecutableCache(below).find_or_compile(request_for(doubling())).is_hit); });
  EXPECT_EQ(again, "");
}

// Every damage is a miss, one warning, the right results, and a file that is whole again.
TEST_F(ExecutableCaches, MendDamagedFiles) {
  found();
  const fs::path file = files().at(0);
  const std::string whole = text_of_file(file);
  std::vector<std::string> damaged = {"", "PK\x03\x04 something else",
                                      std::string(whole.size(), '\0')};
  for (size_t size = 0; size < whole.size(); size += 100) damaged.push_back(whole.substr(0, size));
  for (size_t at = 0; at < whole.size(); at += 97) {
    damaged.push_back(whole);
    damaged.back()[at] ^= 1;
  }
  damaged.push_back(whole + "more");
  for (size_t i = 0; i < damaged.size(); ++i) {
    std::ofstream(file, std::ios::binary) << damaged[i];
    CacheResult result;
    const std::string said = warnings_of([&] { result = found(); });
    EXPECT_FALSE(result.is_hit) << i;
    EXPECT_EQ(results_of(result.executable), expected_) << i;
    EXPECT_EQ(lines(said), 1U) << said;
    EXPECT_TRUE(found().is_hit) << i;
  }
}

TEST_F(ExecutableCaches, DoNotBelieveNames) {
  found();
  const fs::path file = files().at(0);
  Graph other = doubling();
  other.add_output("1", ValueId{0});
  found(request_for(std::move(other)));
  for (const fs::path& path : files()) {
    if (path != file) fs::copy_file(path, file, fs::copy_options::overwrite_existing);
  }
  const std::string said =
      warnings_of([&] { EXPECT_EQ(results_of(found().executable), expected_); });
  EXPECT_NE(said.find("another program than its name says"), std::string::npos) << said;
  fs::remove(file);
  fs::create_directory(file);  // nothing can take the place of this
  EXPECT_EQ(lines(warnings_of([&] { EXPECT_EQ(results_of(found().executable), expected_); })), 2U);
}

TEST_F(ExecutableCaches, DoWithoutAFolder) {
  std::ofstream(folder_ / "file") << "text";
  for (const std::string& place :
       {(folder_ / "file").string(), (folder_ / "file" / "below").string(),
        std::string("/proc/self")}) {
    std::string said;
    said = warnings_of([&] {
      const CacheResult result = ExecutableCache(place).find_or_compile(request_for(doubling()));
      EXPECT_FALSE(result.is_hit);
      EXPECT_EQ(results_of(result.executable), expected_);
    });
    EXPECT_EQ(lines(said), 1U) << said;
  }
  EXPECT_FALSE(ExecutableCache(folder_ / "file").is_writable());
  EXPECT_TRUE(ExecutableCache(folder_).is_writable());
}

TEST_F(ExecutableCaches, AFullDiskIsNoError) {
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit small = before;
  small.rlim_cur = 1000;
  setrlimit(RLIMIT_FSIZE, &small);
  CacheResult result;
  const ExecutableCache cache(folder_);
  const CacheRequest request = request_for(doubling());
  testing::internal::CaptureStderr();
  result = cache.find_or_compile(request);
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_EQ(results_of(result.executable), expected_);
  EXPECT_EQ(lines(said), 1U) << said;
  EXPECT_TRUE(files().empty());
}

TEST_F(ExecutableCaches, OneOfManyProcessesCompiles) {
  std::vector<pid_t> children;
  for (int i = 0; i < 20; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      const CacheResult result = found();
      _exit(results_of(result.executable) != expected_ ? 2 : result.is_hit ? 0 : 1);
    }
    children.push_back(child);
  }
  int compiled = 0;
  for (const pid_t child : children) {
    int status = 0;
    waitpid(child, &status, 0);
    ASSERT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) < 2);
    compiled += WEXITSTATUS(status);
  }
  EXPECT_EQ(compiled, 1);
  EXPECT_EQ(files().size(), 1U);
}

TEST_F(ExecutableCaches, NobodyWaitsForEver) {
  found();
  const fs::path file = files().at(0);
  fs::remove(file);
  const FileLock stuck(fs::path(file).replace_extension(".lock"), std::chrono::seconds(1));
  ASSERT_TRUE(stuck.is_held());
  const std::string said = warnings_of([&] {
    const ExecutableCache cache(folder_, std::chrono::milliseconds(20));
    EXPECT_FALSE(cache.find_or_compile(request_for(doubling())).is_hit);
  });
  EXPECT_NE(said.find("not waiting any longer"), std::string::npos) << said;
  EXPECT_TRUE(found().is_hit);
  int polls = 0;
  CacheRequest request = request_for(doubling());
  request.poll = [&] {
    if (++polls == 2) throw std::runtime_error("Ctrl-C");
  };
  fs::remove(file);
  EXPECT_THROW(found(request), std::runtime_error);
}

}  // namespace
}  // namespace tessera
