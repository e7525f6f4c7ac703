// Runs the cases in testdata/<pass>.ir, text in and text out: cases stand between lines `// ====`;
// what a graph must become follows a line `// ----`, without one it must stay as it is.
// testdata/pipeline.ir goes through all passes.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "tessera/base/checkout_for_test.h"
#include "tessera/base/text_files_for_test.h"
#include "tessera/ir/text.h"
#include "tessera/passes/pipeline.h"
#include "tessera/passes/read_graph.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

const fs::path folder = source_folder() / "tessera/passes/testdata";

std::vector<std::string> files() {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) {
    names.push_back(entry.path().stem().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::vector<Pass> passes_for(const std::string& file) {
  if (file == "pipeline") return pipeline();
  return {find_pass(pipeline(), file)};
}

class Testdata : public testing::TestWithParam<std::string> {};

TEST_P(Testdata, BecomesWhatIsExpected) {
  const auto passes = passes_for(GetParam());
  const auto cases = split_at_lines(text_of_file(folder / (GetParam() + ".ir")), "// ====");
  for (const auto& text : cases) {
    const std::string title = text.substr(0, text.find('\n'));
    const auto parts = split_at_lines(text, "// ----");
    ASSERT_LE(parts.size(), 2U) << title;
    Graph graph = read_graph(parts[0]);
    run_passes(graph, passes, {.disabled = {}, .verify = true});
    EXPECT_EQ(print(graph), print(read_graph(parts.back()))) << title;
    const std::string once = print(graph);
    run_passes(graph, passes, {.disabled = {}, .verify = true});
    EXPECT_EQ(print(graph), once) << "a second run changed the graph: " << title;
  }
}

INSTANTIATE_TEST_SUITE_P(Passes, Testdata, testing::ValuesIn(files()),
                         [](const auto& info) { return info.param; });

TEST(Testdata, EveryPassHasAFile) {
  for (const Pass& pass : pipeline()) {
    EXPECT_TRUE(fs::exists(folder / (std::string(pass.name) + ".ir"))) << pass.name;
  }
}

}  // namespace
}  // namespace tessera
