#include "examples/cpp/support/interrupt.h"

#include <gtest/gtest.h>

#include <csignal>
#include <cstdio>

namespace tessera_examples {
namespace {

TEST(InterruptDeathTest, EndsTheProgramBySignal) {
  for (const int signal : {SIGINT, SIGTERM}) {
    const auto program = [signal] {
      end_on_interrupt();
      std::raise(signal);
      std::fputs("still running", stderr);
    };
    EXPECT_EXIT(program(), testing::KilledBySignal(signal), "^Interrupted.\n$");
  }
}

TEST(InterruptDeathTest, WaitsForAFile) {
  const auto program = [] {
    end_on_interrupt();
    write_uninterrupted([] {
      std::raise(SIGINT);
      std::fputs("written\n", stderr);
    });
    std::fputs("still running", stderr);
  };
  EXPECT_EXIT(program(), testing::KilledBySignal(SIGINT), "^written\nInterrupted.\n$");
}

TEST(Interrupt, WritesWithoutASignal) {
  bool written = false;
  write_uninterrupted([&] { written = true; });
  EXPECT_TRUE(written);
}

}  // namespace
}  // namespace tessera_examples
