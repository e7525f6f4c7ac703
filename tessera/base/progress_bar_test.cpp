#include "tessera/base/progress_bar.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <string>

namespace tessera {
namespace {

// A stream that ends in memory.
class Memory {
 public:
  Memory() : stream_(open_memstream(&data_, &size_)) {}
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  ~Memory() {
    std::fclose(stream_);
    std::free(data_);
  }
  std::FILE* stream() { return stream_; }
  std::string text() {
    std::fflush(stream_);
    return {data_, size_};
  }

 private:
  char* data_ = nullptr;
  size_t size_ = 0;
  std::FILE* stream_;
};

struct Bench {
  Memory memory;
  double now = 100;

  ProgressOptions options(bool terminal) {
    ProgressOptions options;
    options.stream = memory.stream();
    options.terminal = terminal;
    options.clock = [this] { return now; };
    return options;
  }
};

int64_t count_of(const std::string& text, char character) {
  return std::count(text.begin(), text.end(), character);
}

TEST(FormatProgress, SlowWorkIsSecondsPerUnit) {
  EXPECT_EQ(
      format_progress({.description = "epochs", .done = 2, .total = 5, .elapsed_seconds = 12.2}),
      "epochs:  40%|████      | 2/5 [00:12<00:18,  6.10s/it]");
}

TEST(FormatProgress, FastWorkIsUnitsPerSecondWithPostfix) {
  EXPECT_EQ(format_progress({.description = "batches",
                             .done = 1389,
                             .total = 3750,
                             .elapsed_seconds = 2.7,
                             .rate = 512.31,
                             .postfix = "loss=0.512"}),
            "batches:  37%|███▋      | 1389/3750 [00:02<00:04, 512.31it/s, loss=0.512]");
}

TEST(FormatProgress, RateCanBeHidden) {
  ProgressState state{.description = "Graph compilation", .done = 100, .total = 100};
  state.show_rate = false;
  EXPECT_EQ(format_progress(state), "Graph compilation: 100%|██████████| 100/100 [00:00<00:00]");
  state.done = 0;
  EXPECT_EQ(format_progress(state), "Graph compilation:   0%|          | 0/100 [00:00<?]");
}

TEST(FormatProgress, NothingDoneYetHasNoRate) {
  EXPECT_EQ(format_progress({.description = "epochs", .total = 5}),
            "epochs:   0%|          | 0/5 [00:00<?, ?it/s]");
}

TEST(FormatProgress, UnknownTotalHasNoBar) {
  EXPECT_EQ(format_progress({.done = 12, .elapsed_seconds = 4, .unit = "file"}),
            "12file [00:04,  3.00file/s]");
  EXPECT_EQ(format_progress({.done = 7, .total = 6, .elapsed_seconds = 7}),
            "7it [00:07,  1.00it/s]");
}

TEST(FormatProgress, EveryEighthHasItsBlock) {
  const char* wanted[] = {" ", "▏", "▎", "▍", "▌", "▋", "▊", "▉", "█"};
  for (int i = 0; i <= 8; ++i) {
    EXPECT_EQ(
        format_progress({.done = i, .total = 80, .show_rate = false}).substr(5).find(wanted[i]), 0U)
        << i;
  }
}

TEST(FormatProgress, HoursShowOnlyWhenReached) {
  EXPECT_EQ(format_progress({.done = 1, .total = 3, .elapsed_seconds = 3599, .show_rate = false}),
            " 33%|███▎      | 1/3 [59:59<1:59:58]");
}

TEST(FormatProgress, StrangeNumbersStayReadable) {
  EXPECT_EQ(format_progress({.done = -3, .total = 10, .show_rate = false}),
            "  0%|          | 0/10 [00:00<?]");
  EXPECT_EQ(format_progress({.done = 1, .total = INT64_MAX, .elapsed_seconds = 10}),
            "  0%|          | 1/9223372036854775807 [00:10<?, 10.00s/it]");
}

TEST(ProgressBar, ShortRunInLogIsOneLine) {
  Bench bench;
  ProgressBar bar("epochs", 5, bench.options(false));
  for (int i = 0; i < 5; ++i) {
    bench.now += 0.5;
    bar.advance();
  }
  bar.finish();
  bar.finish();
  EXPECT_EQ(bench.memory.text(), "epochs: 100%|██████████| 5/5 [00:02<00:00,  2.00it/s]\n");
}

TEST(ProgressBar, LongRunInLogReportsTenths) {
  Bench bench;
  ProgressBar bar("long", 100, bench.options(false));
  for (int i = 0; i < 100; ++i) {
    bench.now += 1;
    bar.advance();
  }
  bar.finish();
  const std::string text = bench.memory.text();
  EXPECT_EQ(count_of(text, '\n'), 10);
  EXPECT_EQ(text.find("long:  10%|█         | 10/100 [00:10<01:30,  1.00it/s]\n"), 0U);
  EXPECT_EQ(text.find('\r'), std::string::npos);
}

TEST(ProgressBar, LogGetsAtMostOneLineInFiveSeconds) {
  Bench bench;
  ProgressBar bar("quick", 100, bench.options(false));
  for (int i = 0; i < 100; ++i) {
    bench.now += 0.12;  // twelve seconds in all: two lines between, one at the end
    bar.advance();
  }
  bar.finish();
  EXPECT_EQ(count_of(bench.memory.text(), '\n'), 3);
}

TEST(ProgressBar, ErasedBarWritesNothingToLog) {
  Bench bench;
  ProgressOptions options = bench.options(false);
  options.leave = false;
  {
    ProgressBar bar("batches", 10, options);
    for (int i = 0; i < 10; ++i) {
      bench.now += 10;
      bar.advance();
    }
  }
  EXPECT_EQ(bench.memory.text(), "");
}

TEST(ProgressBar, TerminalRedrawsTenTimesASecond) {
  Bench bench;
  {
    ProgressBar bar("work", 100'000, bench.options(true));
    for (int i = 0; i < 100'000; ++i) {
      bench.now += 0.00001;  // one second in all
      bar.advance();
    }
  }
  const std::string text = bench.memory.text();
  EXPECT_GE(count_of(text, '\r'), 10);
  EXPECT_LE(count_of(text, '\r'), 12);
  EXPECT_EQ(count_of(text, '\n'), 1);
  EXPECT_EQ(text.back(), '\n');
}

TEST(ProgressBar, NestedBarIsDrawnBelowAndErased) {
  Bench bench;
  ProgressOptions inner = bench.options(true);
  inner.leave = false;
  inner.level = 1;
  {
    ProgressBar bar("batches", 2, inner);
    EXPECT_EQ(bench.memory.text(),
              "\n\rbatches:   0%|          | 0/2 [00:00<?, ?it/s]\x1b[K\x1b[A");
  }
  const std::string text = bench.memory.text();
  const std::string erased = "\n\r\x1b[K\x1b[A\r";
  EXPECT_EQ(text.substr(text.size() - erased.size()), erased);
}

TEST(ProgressBar, NestedBarThatStaysMovesUp) {
  Bench bench;
  ProgressOptions inner = bench.options(true);
  inner.level = 1;
  {
    ProgressBar bar("batches", 1, inner);
    bench.now += 1;
    bar.advance();
  }
  const std::string text = bench.memory.text();
  const std::string last = "\rbatches: 100%|██████████| 1/1 [00:01<00:00,  1.00it/s]\x1b[K\n";
  EXPECT_EQ(text.substr(text.size() - last.size()), last);
}

TEST(ProgressBar, PostfixShowsAndExceptionKeepsState) {
  Bench bench;
  try {
    ProgressBar bar("epochs", 5, bench.options(false));
    bar.set_postfix("loss=1.5");
    bench.now += 4;
    bar.advance(2);
    throw std::runtime_error("stop");
  } catch (const std::runtime_error&) {
  }
  EXPECT_EQ(bench.memory.text(),
            "epochs:  40%|████      | 2/5 [00:04<00:06,  2.00s/it, loss=1.5]\n");
}

TEST(ProgressBar, ClockIsAskedRarely) {
  Bench bench;
  int asked = 0;
  ProgressOptions options = bench.options(false);
  options.clock = [&asked] {
    ++asked;
    return 0.0;
  };
  ProgressBar bar("tight", 1'000'000, options);
  for (int i = 0; i < 1'000'000; ++i) bar.advance();
  EXPECT_LT(asked, 5000);
}

}  // namespace
}  // namespace tessera
