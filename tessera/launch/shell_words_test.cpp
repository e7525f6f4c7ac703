#include "tessera/launch/shell_words.h"

#include <gtest/gtest.h>

#include "tessera/base/error.h"

namespace tessera {
namespace {

using Words = std::vector<std::string>;

TEST(ShellWords, AreSplitAsAShellDoes) {
  EXPECT_EQ(split_words(" -x PATH\t-x  A=1\n"), (Words{"-x", "PATH", "-x", "A=1"}));
  EXPECT_EQ(split_words(R"(-x 'A=1 2' "B='3'" C\ D '')"),
            (Words{"-x", "A=1 2", "B='3'", "C D", ""}));
  EXPECT_EQ(split_words(R"("a\"b\n\\" x'y'"z")"), (Words{R"(a"b\n\)", "xyz"}));
  EXPECT_EQ(split_words("$HOME `ls`"), (Words{"$HOME", "`ls`"}));
  EXPECT_EQ(split_words("  "), Words{});
}

TEST(ShellWords, AQuoteMustBeClosed) {
  for (const char* text : {"'a", "\"a", "a\\"}) {
    EXPECT_THROW(split_words(text), Error) << text;
  }
}

TEST(ShellWords, QuotedWordsAreReadAsTheyWere) {
  EXPECT_EQ(shell_quoted("--host=a:2,b"), "--host=a:2,b");
  EXPECT_EQ(shell_quoted(""), "''");
  EXPECT_EQ(shell_quoted("it's"), R"('it'\''s')");
  const Words words = {"a b", "$x", "it's", "", "-x", "A=\"1\"", "a\nb", "ü", "\\"};
  EXPECT_EQ(split_words(shell_quoted(words)), words);
}

}  // namespace
}  // namespace tessera
