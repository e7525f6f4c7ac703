// Text in, text out: cases stand between lines `// ====`; what a graph must become follows a line
// `// ----`, without one it must stay as it is.
#include "tessera/backend/cpu/lower/fuse_updates.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "tessera/ir/text.h"
#include "tessera/ops/builder.h"

namespace tessera::cpu {
namespace {

std::vector<std::string> split_at_lines(const std::string& text, const std::string& separator) {
  std::vector<std::string> parts(1);
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line == separator) {
      parts.emplace_back();
    } else {
      parts.back() += line + '\n';
    }
  }
  return parts;
}

TEST(FuseUpdates, BecomesWhatIsExpected) {
  const auto path = std::filesystem::path(TESSERA_SOURCE_DIR) /
                    "tessera/backend/cpu/lower/testdata/fuse_updates.ir";
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  for (const auto& one : split_at_lines(text.str(), "// ====")) {
    SCOPED_TRACE(one.substr(0, one.find('\n')));
    const auto parts = split_at_lines(one, "// ----");
    ASSERT_LE(parts.size(), 2U);
    const Graph graph = fuse_updates(parse(parts[0]));
    verify(graph);
    EXPECT_EQ(print(graph), print(parse(parts.back())));
  }
}

}  // namespace
}  // namespace tessera::cpu
