#include "tessera/launch/option_words.h"

#include <gtest/gtest.h>

#include "tessera/base/error.h"
#include "tessera/launch/option_table.h"

namespace tessera {
namespace {

using Given = std::vector<GivenOption>;
using Words = std::vector<std::string>;

std::string message_of(const Words& arguments) {
  try {
    read_option_words(arguments);
  } catch (const Error& error) {
    return error.message();
  }
  return {};
}

TEST(OptionWords, EverythingAfterTheProgramIsItsOwn) {
  const OptionWords words =
      read_option_words({"--num-instances", "2", "prog", "--num-instances", "3", "-v", "--", ":"});
  EXPECT_EQ(words.given, (Given{{"num-instances", "2"}}));
  EXPECT_EQ(words.program, (Words{"prog", "--num-instances", "3", "-v", "--", ":"}));
  EXPECT_EQ(read_option_words({"-v", "--", "--odd"}).program, Words{"--odd"});
  EXPECT_EQ(read_option_words({"-", "a"}).program, (Words{"-", "a"}));
  EXPECT_EQ(read_option_words({}).program, Words{});
}

TEST(OptionWords, ValuesMayBeginWithDashesAndBeEmpty) {
  const OptionWords words = read_option_words(
      {"--mpi-global-args", "--tag-output", "--mpi-local-args=-x A=1", "--executable-cache-path",
       "", "--executable-cache-path=", "-H", "a", "-Hb,c", "p"});
  EXPECT_EQ(words.given, (Given{{"mpi-global-args", "--tag-output"},
                                {"mpi-local-args", "-x A=1"},
                                {"executable-cache-path", ""},
                                {"executable-cache-path", ""},
                                {"host", "a"},
                                {"host", "b,c"}}));
  EXPECT_TRUE(words.has("host") && !words.has("vv"));
  EXPECT_EQ(words.last("host"), "b,c");
  EXPECT_EQ(words.last("vv"), "");
}

// spec: 8.3 vv
TEST(OptionWords, VerbosityHasItsForms) {
  EXPECT_EQ(read_option_words({"-v", "p"}).given, (Given{{"verbose", ""}}));
  EXPECT_EQ(read_option_words({"-vv", "p"}).given, (Given{{"vv", ""}}));
  EXPECT_EQ(read_option_words({"--vv", "p"}).given, (Given{{"vv", ""}}));
}

// spec: 8.3 reset-partition, 8.3 update-partition, 8.3 remove-partition
TEST(OptionWords, YesNeedNotBeSaid) {
  EXPECT_EQ(read_option_words({"--offline-mode", "python3"}).given,
            (Given{{"offline-mode", "yes"}}));
  EXPECT_EQ(read_option_words({"--offline-mode", "python3"}).program, Words{"python3"});
  EXPECT_EQ(
      read_option_words(
          {"--reset-partition", "0", "--update-partition=yes", "--remove-partition", "false", "p"})
          .given,
      (Given{
          {"reset-partition", "0"}, {"update-partition", "yes"}, {"remove-partition", "false"}}));
}

TEST(OptionWords, MistakesAreSentences) {
  EXPECT_EQ(message_of({"--num-replica", "2"}),
            "there is no option --num-replica; `poprun --help` lists them");
  EXPECT_EQ(message_of({"-x", "p"}), "there is no option -x; `poprun --help` lists them");
  EXPECT_EQ(message_of({"-vx"}), "there is no option -vx; `poprun --help` lists them");
  EXPECT_EQ(message_of({"--num-replicas"}), "--num-replicas needs a value: N");
  EXPECT_EQ(message_of({"--dry-run=1"}), "--dry-run takes no value, got '1'");
}

TEST(OptionTable, HelpNamesEveryOptionInNarrowLines) {
  const std::string help = help_text();
  for (const OptionRow& row : option_table()) {
    EXPECT_NE(help.find("--" + std::string(row.name)), std::string::npos) << row.name;
  }
  for (size_t at = 0, end; (end = help.find('\n', at)) != std::string::npos; at = end + 1) {
    EXPECT_LE(end - at, 105u) << help.substr(at, end - at);
  }
}

}  // namespace
}  // namespace tessera
