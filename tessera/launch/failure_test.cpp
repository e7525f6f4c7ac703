#include "tessera/launch/failure.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <csignal>

namespace tessera {
namespace {

constexpr int ended_with_3 = 3 << 8;  // as waitpid() has it

TEST(Failure, IsOneSentenceAndACode) {
  EXPECT_EQ(failure_of(1, "a", ended_with_3, true),
            (Failure{3,
                     "instance 1 on host a ended with exit code 3; the other instances are "
                     "ended"}));
  EXPECT_EQ(failure_of(0, "a.net", SIGKILL, false),
            (Failure{137, "instance 0 on host a.net was killed by signal 9 (Killed)"}));
  EXPECT_EQ(start_failure_of(2, "b", "./x", EACCES, false),
            (Failure{126, "instance 2 on host b could not start './x': Permission denied"}));
  EXPECT_EQ(start_failure_of(2, "b", "./x", ENOENT, false).exit_code, 127);
}

TEST(Failure, IsReadAsItWasWritten) {
  const Failure failure = failure_of(1, "a", SIGSEGV, true);
  EXPECT_EQ(failure_in(text_of(failure)), failure);
}

}  // namespace
}  // namespace tessera
