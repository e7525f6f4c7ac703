#include "tessera/launch/mpirun_messages.h"

#include <gtest/gtest.h>

namespace tessera {
namespace {

using Lines = std::vector<std::string>;

const std::string rule(74, '-');
const std::string noticed = "mpirun noticed that process rank 1 with PID 7 on node a exited";

// What is shown of a text between two rules.
Lines banner(MpirunMessages& messages, const std::string& text) {
  Lines lines;
  for (const std::string& line : {rule, text, rule}) {
    for (std::string& shown : messages.add(line)) lines.push_back(std::move(shown));
  }
  return lines;
}

TEST(MpirunMessages, WhatIsKnownIsNotRepeated) {
  MpirunMessages messages(false);
  EXPECT_EQ(messages.add("mpirun: Forwarding signal 10 to job"), Lines{});
  EXPECT_EQ(messages.add(" "), Lines{});
  EXPECT_EQ(messages.add("a warning"), Lines{"a warning"});
  EXPECT_EQ(banner(messages, noticed), (Lines{rule, noticed, rule}));  // nobody else has said so
  messages.expect_end();
  EXPECT_EQ(banner(messages, noticed), Lines{});
  EXPECT_EQ(banner(messages, "Something else"), (Lines{rule, "Something else", rule}));
  EXPECT_EQ(messages.add(rule), Lines{});
  EXPECT_EQ(messages.finish(), Lines{rule});
}

TEST(MpirunMessages, LostHostsAreForUsToName) {
  MpirunMessages messages(false);
  EXPECT_EQ(messages.add("ssh: cannot find b"), Lines{"ssh: cannot find b"});
  EXPECT_EQ(banner(messages, "ORTE was unable to reliably start one or more daemons."), Lines{});
  EXPECT_NE(messages.all().find("ssh: cannot find b"), std::string::npos);
}

TEST(MpirunMessages, EverythingMayBeWanted) {
  MpirunMessages messages(true);
  messages.expect_end();
  EXPECT_EQ(banner(messages, noticed), (Lines{rule, noticed, rule}));
}

}  // namespace
}  // namespace tessera
