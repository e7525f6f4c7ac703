#include "tessera/runtime/compile.h"

#include <gtest/gtest.h>

#include "tessera/base/error.h"
#include "tessera/base/log.h"
#include "tessera/ops/builder.h"

namespace tessera {
namespace {

Graph two_element_wise_nodes() {
  Graph graph;
  Builder build(graph);
  const ValueId x = graph.add_input(InputKind::data, "x", {DType::f32, {8}});
  graph.add_output("y", build.add("tanh", {build.add("relu", {x})}));
  return graph;
}

TEST(Compile, LeavesOutDisabledPassesOfBothLists) {
  const auto calls = [](const CompileOptions& options) {
    return compile(two_element_wise_nodes(), options)->plan().calls.size();
  };
  EXPECT_EQ(calls({}), 1U);
  EXPECT_EQ(calls({.disabled_passes = {"remove_dead", "fuse_elementwise"}}), 2U);
}

TEST(Compile, RefusesToDisableWhatIsNoPass) {
  for (const char* name : {"fuse_everything", "decompose"}) {
    try {
      compile(two_element_wise_nodes(), {.disabled_passes = {name}});
      FAIL() << name;
    } catch (const Error& error) {
      EXPECT_NE(error.message().find(fmt::format("can be turned off, got '{}'", name)),
                std::string::npos);
      for (const char* known : {"remove_dead, ", "fuse_losses, "}) {
        EXPECT_NE(error.message().find(known), std::string::npos) << error.message();
      }
    }
  }
}

size_t count(const std::string& text, std::string_view part) {
  size_t times = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++times;
  return times;
}

TEST(Compile, LogsEachPassOnce) {
  set_log_level(LogLevel::debug);
  testing::internal::CaptureStderr();
  compile(two_element_wise_nodes());
  const std::string text = testing::internal::GetCapturedStderr();
  set_log_level(LogLevel::warn);
  EXPECT_EQ(count(text, "pass merge_duplicates:"), 1U) << text;
  EXPECT_EQ(count(text, "pass fuse_elementwise:"), 1U) << text;
}

}  // namespace
}  // namespace tessera
