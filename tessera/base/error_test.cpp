#include "tessera/base/error.h"

#include <gtest/gtest.h>

#include <thread>

namespace tessera {
namespace {

TEST(Error, CarriesKindAndSentence) {
  try {
    fail(ErrorKind::value, "wanted {}, got {}", 3, "five");
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::value);
    EXPECT_EQ(error.message(), "wanted 3, got five");
    EXPECT_STREQ(error.what(), "wanted 3, got five");
    EXPECT_TRUE(error.context().empty());
  }
}

TEST(Error, NamesScopesInnermostFirst) {
  const ErrorContext outer("compiling step '{}'", "train");
  try {
    const ErrorContext inner("node {}", 12);
    check(false, "sizes differ");
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "sizes differ\n  in node 12\n  in compiling step 'train'");
    EXPECT_EQ(error.context(), (std::vector<std::string>{"node 12", "compiling step 'train'"}));
    EXPECT_EQ(error.kind(), ErrorKind::user);
  }
}

TEST(Error, ScopesEndAndBelongToTheirThread) {
  { const ErrorContext gone("a scope that has ended"); }
  const ErrorContext here("this thread");
  std::thread([] { EXPECT_TRUE(Error(ErrorKind::user, "x").context().empty()); }).join();
  EXPECT_EQ(Error(ErrorKind::user, "x").context().size(), 1U);
}

TEST(Error, CarriesThePlaceOfTheInnermostScopeThatHasOne) {
  const ErrorContext outer({"model.py", 3, ""}, "forward");
  const ErrorContext inner(SourcePlace{"model.py", 12, "encoder.conv1"}, "conv2d at {}", "here");
  const ErrorContext innermost({"", 0, "elsewhere"}, "a scope whose file is not known");
  const Error error(ErrorKind::user, "sizes differ");
  EXPECT_EQ(error.place(), (SourcePlace{"model.py", 12, "encoder.conv1"}));
  EXPECT_EQ(error.context()[1], "conv2d at here");
  EXPECT_EQ(Error(ErrorKind::user, "x", {"own.py", 1, ""}).place().file, "own.py");
}

TEST(Error, HasNoPlaceOutsideOfScopes) {
  { const ErrorContext gone({"model.py", 3, ""}, "a scope that has ended"); }
  EXPECT_EQ(Error(ErrorKind::user, "x").place(), SourcePlace{});
}

TEST(Error, CheckIsSilentWhereAllIsWell) {
  EXPECT_NO_THROW(check(true, "never said"));
  EXPECT_NO_THROW(check(true, ErrorKind::type, "never said"));
}

TEST(InternalError, NamesFileAndLine) {
  try {
    TESSERA_INVARIANT(1 + 1 == 3, "sum is {}", 2);
    FAIL();
  } catch (const InternalError& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("sum is 2"), std::string::npos) << text;
    EXPECT_NE(text.find("error_test.cpp:"), std::string::npos) << text;
  }
}

}  // namespace
}  // namespace tessera
