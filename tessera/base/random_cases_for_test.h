// Runs many small cases, each made from a seed, in processes of their own: a crash or a case that
// never ends is a finding and not the end of the test.
//
// Every run has a new seed, which is printed. More cases, or one again:
//   TESSERA_RANDOM_CASES=1000000 TESSERA_RANDOM_SEED=7 PROGRAM --gtest_filter=...
// Case i of seed s is the first one of seed s + i.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <new>
#include <random>
#include <string>

namespace tessera {

// How a case ends when it keeps its promise.
enum class CaseEnd { ran, refused };

class RandomCases {
 public:
  // What a case is, for when it does not come back; written before it is tried.
  using Describe = std::function<void(const std::string&)>;
  // Throws what is not allowed.
  using Case = std::function<CaseEnd(uint64_t seed, const Describe& describe)>;

  RandomCases()
      : progress_(new (mmap(nullptr, sizeof(Progress), PROT_READ | PROT_WRITE,
                            MAP_SHARED | MAP_ANONYMOUS, -1, 0)) Progress) {}
  ~RandomCases() { munmap(progress_, sizeof(Progress)); }
  RandomCases(const RandomCases&) = delete;
  RandomCases& operator=(const RandomCases&) = delete;

  // A failure for every kind of finding. A twentieth of the cases at least must run.
  void run(uint64_t default_count, const Case& one) {
    const uint64_t count = setting("TESSERA_RANDOM_CASES", default_count);
    const uint64_t seed = setting("TESSERA_RANDOM_SEED", std::random_device()());
    std::fprintf(stderr, "TESSERA_RANDOM_SEED=%llu\n", static_cast<unsigned long long>(seed));
    constexpr uint64_t batch = 2000;  // a fresh process now and then keeps what it collects small
    while (progress_->next < count && !testing::Test::HasFatalFailure()) {
      run_batch(seed, std::min(count, (progress_->next / batch + 1) * batch), one);
    }
    fmt::print(stderr, "{} cases: {} ran, {} were refused\n", count, progress_->ran,
               progress_->refused);
    for (const auto& [kind, times] : findings_) fmt::print(stderr, "{:>7} x{}\n", times, kind);
    EXPECT_GE(progress_->ran, count / 20);
  }

 private:
  static constexpr int seconds_for_one = 20;  // of processor time
  static constexpr char end_of_line = 1;      // within a line of the pipe

  struct Progress {
    uint64_t next = 0, ran = 0, refused = 0;
    char text[1 << 16] = {};
  };

  static uint64_t setting(const char* name, uint64_t otherwise) {
    const char* text = std::getenv(name);
    return text ? std::strtoull(text, nullptr, 10) : otherwise;
  }

  void describe(const std::string& text) {
    const size_t length = std::min(sizeof progress_->text - 1, text.size());
    std::memcpy(progress_->text, text.data(), length);
    progress_->text[length] = 0;
  }

  // In the child: findings go through the pipe.
  [[noreturn]] void run_cases(uint64_t seed, uint64_t end, const Case& one, FILE* findings) {
    for (; progress_->next < end; ++progress_->next) {
      const itimerval limit{{0, 0}, {seconds_for_one, 0}};
      setitimer(ITIMER_PROF, &limit, nullptr);
      progress_->text[0] = 0;
      try {
        const CaseEnd how =
            one(seed + progress_->next, [this](const std::string& text) { describe(text); });
        ++(how == CaseEnd::ran ? progress_->ran : progress_->refused);
      } catch (const std::exception& error) {
        std::string line = fmt::format("{} in {}", error.what(), progress_->text);
        std::replace(line.begin(), line.end(), '\n', end_of_line);
        fmt::print(findings, "{} {}\n", progress_->next, line);
        std::fflush(findings);
      }
    }
    _exit(0);
  }

  void run_batch(uint64_t seed, uint64_t end, const Case& one) {
    int ends[2];
    ASSERT_EQ(pipe(ends), 0);
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      close(ends[0]);
      run_cases(seed, end, one, fdopen(ends[1], "w"));
    }
    close(ends[1]);
    FILE* findings = fdopen(ends[0], "r");
    char* line = nullptr;
    size_t room = 0;
    while (getline(&line, &room, findings) > 0) {
      std::string text = line;
      std::replace(text.begin(), text.end(), end_of_line, '\n');
      found(seed, text);
    }
    std::free(line);
    std::fclose(findings);
    int status = 0;
    waitpid(child, &status, 0);
    if (progress_->next >= end) return;
    const int number = WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status);
    std::string text = progress_->text;
    found(seed, fmt::format("{} ended by {} {} in {}", progress_->next,
                            WIFSIGNALED(status) ? "signal" : "exit", strsignal(number), text));
    ++progress_->next;
  }

  // One cause is told once: its kind is the first line without numbers.
  void found(uint64_t seed, const std::string& line) {
    char* text = nullptr;
    const uint64_t number = std::strtoull(line.c_str(), &text, 10);
    std::string kind = std::string(text).substr(0, std::string(text).find('\n'));
    std::erase_if(kind, [](char c) { return c >= '0' && c <= '9'; });
    if (++findings_[kind] > 1) return;
    ADD_FAILURE() << "TESSERA_RANDOM_CASES=1 TESSERA_RANDOM_SEED=" << seed + number << ":" << text;
  }

  Progress* progress_;
  std::map<std::string, int64_t> findings_;
};

}  // namespace tessera
