#include "tessera/dist/link.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <functional>
#include <numeric>
#include <optional>
#include <random>
#include <thread>

#include "tessera/base/error.h"
#include "tessera/base/half.h"
#include "tessera/base/thread_group.h"
#include "tessera/dist/local_transport_for_test.h"

namespace tessera::dist {
namespace {

using std::chrono::milliseconds;

// Short times and small pieces: what takes minutes and megabytes elsewhere happens here at once.
LinkSettings hasty() {
  return {.patience = milliseconds(1500), .deadlock = milliseconds(400), .piece_bytes = 64};
}

// Runs work(link) as each instance. What each of them ended with: nothing, or the message of its
// Error.
std::vector<std::string> run(int instances, const std::function<void(Link&)>& work,
                             LocalNetwork* given = nullptr, LinkSettings settings = hasty()) {
  LocalNetwork own(instances);
  LocalNetwork& network = given ? *given : own;
  std::vector<std::string> ends(static_cast<size_t>(instances));
  std::vector<std::thread> threads;
  for (int i = 0; i < instances; ++i) {
    threads.emplace_back([&, i] {
      std::optional<Link> link;
      try {
        link.emplace([&, i] { return network.transport(i); }, settings);
        work(*link);
        link->close();
      } catch (const Error& error) {
        ends[static_cast<size_t>(i)] = error.message();
        if (link) link->close_failed(error.message());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return ends;
}

std::string host() {
  std::array<char, 256> name{};
  gethostname(name.data(), name.size() - 1);
  return name.data();
}

std::span<std::byte> bytes_of(std::vector<float>& values) {
  return std::as_writable_bytes(std::span(values));
}

const std::vector<std::string> nobody_failed(3);

TEST(Link, InstancesKnowEachOther) {
  EXPECT_EQ(run(3,
                [](Link& link) {
                  EXPECT_EQ(link.count(), 3);
                  EXPECT_EQ(link.name_of(2), "instance 2 on " + host());
                  const std::string own(static_cast<size_t>(link.index()) * 100, 'x');
                  const auto said = link.gather("the test", own, {});
                  ASSERT_EQ(said.size(), 3U);
                  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(said[i], std::string(i * 100, 'x'));
                }),
            nobody_failed);
}

TEST(Link, AllInstancesHaveTheSameBuild) {
  LocalNetwork network(2);
  std::vector<std::string> ends(2);
  std::vector<std::thread> threads;
  for (int i = 0; i < 2; ++i) {
    threads.emplace_back([&, i] {
      LinkSettings settings = hasty();
      settings.build += i == 1 ? " of another day" : "";
      try {
        Link link([&, i] { return network.transport(i); }, settings);
      } catch (const Error& error) {
        ends[static_cast<size_t>(i)] = error.message();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_NE(ends[0].find("instance 1 on " + host() + " runs another build of Tessera"),
            std::string::npos)
      << ends[0];
  EXPECT_FALSE(ends[1].empty());
}

TEST(Link, BroadcastGivesWhatTheRootHas) {
  EXPECT_EQ(run(3,
                [](Link& link) {
                  for (int root = 0; root < 3; ++root) {
                    for (const size_t size : {0, 1, 33, 1000}) {
                      std::vector<float> values(size, static_cast<float>(link.index()));
                      link.broadcast("the test", bytes_of(values), root, {});
                      EXPECT_EQ(values, std::vector<float>(size, static_cast<float>(root)));
                    }
                  }
                }),
            nobody_failed);
}

TEST(Link, ReductionsOfAllKinds) {
  EXPECT_EQ(run(3,
                [](Link& link) {
                  const auto reduced = [&](Reduction reduction) {
                    std::vector<float> values = {static_cast<float>(link.index() + 2), -1};
                    link.reduce({}, "the test", reduction, DType::f32, bytes_of(values), {});
                    return values;
                  };
                  EXPECT_EQ(reduced(Reduction::sum), (std::vector<float>{9, -3}));
                  EXPECT_EQ(reduced(Reduction::min), (std::vector<float>{2, -1}));
                  EXPECT_EQ(reduced(Reduction::max), (std::vector<float>{4, -1}));
                  EXPECT_EQ(reduced(Reduction::product), (std::vector<float>{24, -1}));
                  link.barrier({}, "the test", {});
                }),
            nobody_failed);
}

TEST(Link, SomeInstancesDoThingsAmongThemselves) {
  EXPECT_EQ(
      run(3,
          [](Link& link) {
            if (link.index() == 1) return link.barrier({1}, "alone", {});
            for (int i = 0; i < 3; ++i) {
              std::vector<float> values = {static_cast<float>(link.index() + 1)};
              link.reduce({0, 2}, "the test", Reduction::sum, DType::f32, bytes_of(values), {});
              EXPECT_EQ(values[0], 4);
            }
          }),
      nobody_failed);
}

// The replicas of one instance or of several: sums have the same bits.
std::vector<float> added_up(int instances, int replicas, const std::vector<std::vector<float>>& all,
                            bool early) {
  std::vector<float> result;
  std::mutex mutex;
  const auto ends = run(instances, [&](Link& link) {
    Link* joined = instances > 1 ? &link : nullptr;
    ThreadGroup group(replicas, {joined, joined ? link.open_program("'it'") : 0, true});
    std::vector<std::thread> threads;
    for (int r = 0; r < replicas; ++r) {
      threads.emplace_back([&, r] {
        Communicator& us = group.member(r);
        EXPECT_EQ(us.size(), instances * replicas);
        for (int round = 0; round < 3; ++round) {
          std::vector<float> values = all[static_cast<size_t>(us.rank())];
          auto* data = reinterpret_cast<std::byte*>(values.data());
          const Summand parts[] = {{data, data, 100},
                                   {data + 400, data + 400, values.size() - 100}};
          if (early && us.adds_up_early()) us.begin_all_reduce(7, {DType::f32, parts});
          us.all_reduce(7, {DType::f32, parts});
          const std::lock_guard lock(mutex);
          if (result.empty()) result = values;
          EXPECT_EQ(result, values);
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  });
  EXPECT_EQ(ends, std::vector<std::string>(static_cast<size_t>(instances)));
  return result;
}

TEST(Link, ReplicasOfAllInstancesAddUpInTheOrderOfRanks) {
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  std::vector<std::vector<float>> all(8, std::vector<float>(1000));
  for (auto& values : all) {
    for (float& value : values) value = normal(random) * (random() % 3 ? 1.0F : 1e6F);
  }
  const std::vector<float> expected = added_up(1, 8, all, false);
  for (const int instances : {2, 4, 8}) {
    for (const bool early : {false, true}) {
      EXPECT_EQ(added_up(instances, 8 / instances, all, early), expected) << instances;
    }
  }
}

// What a replica of an instance adds up, of which nobody knows anything else.
void add_up(Link& link, uint64_t program, uint64_t number, size_t count, StepStamp stamp = {}) {
  std::vector<float> values(count, 1);
  const Summand summand{bytes_of(values).data(), bytes_of(values).data(), count};
  const auto pending = link.begin({program, number, DType::f32, {{summand}}, stamp});
  try {
    pending->wait({});
  } catch (...) {
    link.drop(program);
    throw;
  }
}

void expect_told(const std::vector<std::string>& ends, const std::string& sentence) {
  for (const std::string& end : ends) {
    EXPECT_NE(end.find(sentence), std::string::npos) << "'" << end << "'";
  }
}

TEST(Link, WhoeverDoesSomethingElseIsNamed) {
  const auto differing = [](const std::function<void(Link&, uint64_t program)>& work) {
    return run(2, [&](Link& link) { work(link, link.open_program("'it'")); });
  };
  expect_told(differing([](Link& link, uint64_t program) {
                add_up(link, program, 0, 30 + static_cast<size_t>(link.index()));
              }),
              "it adds up 30 numbers, this one 31");
  const auto stamped = [&](const std::function<void(StepStamp&)>& change) {
    return differing([&](Link& link, uint64_t program) {
      StepStamp stamp;
      if (link.index() == 1) change(stamp);
      add_up(link, program, 0, 30, stamp);
    });
  };
  expect_told(stamped([](StepStamp& s) { s.numbers = 1; }), "other numbers (a learning rate");
  expect_told(stamped([](StepStamp& s) { s.iterations = 5; }), "0 device iterations, this one 5");
  expect_told(stamped([](StepStamp& s) { s.weights = 2; }), "written to its program 0 times");
  expect_told(run(2,
                  [](Link& link) {
                    if (link.index() == 0) return link.barrier({}, "the barrier", {});
                    link.gather("the gathering", "x", {});
                  }),
              "does something else");
}

TEST(Link, AnInstanceThatFailsTellsWhy) {
  const auto ends = run(3, [](Link& link) {
    if (link.index() == 1) fail(ErrorKind::user, "the disk is full");
    add_up(link, link.open_program("'it'"), 0, 30);
  });
  for (const size_t i : {0, 2}) {
    EXPECT_TRUE(ends[i].starts_with("instance 1 on ")) << ends[i];
    EXPECT_TRUE(ends[i].ends_with(" failed: the disk is full")) << ends[i];
  }
}

TEST(Link, NobodyWaitsForOneThatHasLeft) {
  const auto ends = run(3, [](Link& link) {
    const uint64_t program = link.open_program("'it'");
    add_up(link, program, 0, 3000);
    if (link.index() != 2) add_up(link, program, 1 << 16, 3000);
  });
  EXPECT_EQ(ends[2], "");
  for (const int i : {0, 1}) {
    EXPECT_NE(ends[static_cast<size_t>(i)].find("instance 2 on " + host() +
                                                " has ended its program while"),
              std::string::npos)
        << ends[static_cast<size_t>(i)];
    EXPECT_NE(ends[static_cast<size_t>(i)].find("update 2 of 'it'"), std::string::npos);
  }
}

// It waits for the others to end, too; of those, only the one that fails says so.
TEST(Link, OneThatHasEndedLeavesWhenAnotherFails) {
  const auto ends = run(3, [](Link& link) {
    if (link.index() == 2) return;
    if (link.index() == 0) return link.barrier({0, 1}, "a barrier", {});
    std::this_thread::sleep_for(milliseconds(50));
    fail(ErrorKind::user, "the disk is full");
  });
  EXPECT_EQ(ends[2], "");
  EXPECT_TRUE(ends[0].ends_with(" failed: the disk is full")) << ends[0];
}

TEST(Link, WhoeverCannotBeReachedIsNamed) {
  LocalNetwork network(2);
  const auto ends = run(
      2,
      [&](Link& link) {
        if (link.index() == 1) {
          std::this_thread::sleep_for(milliseconds(200));
          fail(ErrorKind::user, "left alone");
        }
        network.lose(1);
        link.barrier({}, "a barrier", {});
      },
      &network);
  EXPECT_EQ(ends[0], "instance 1 on " + host() + " cannot be reached from instance 0 on " + host() +
                         ": there is no route");
}

TEST(Link, AThreadWithoutMemoryFailsLikeAnythingElse) {
  LocalNetwork network(2);
  const auto ends = run(
      2,
      [&](Link& link) {
        if (link.index() == 0) network.use_up_memory();
        link.barrier({}, "a barrier", {});
      },
      &network);
  for (const std::string& end : ends) {
    EXPECT_NE(end.find("bad_alloc"), std::string::npos) << end;
  }
}

// MPI begins only when all are there.
TEST(Link, NobodyWaitsForEverForTheOthersToJoin) {
  const auto over = std::make_shared<std::atomic<bool>>(false);
  const auto start = Clock::now();
  std::string message;
  try {
    const Link link(
        [over]() -> std::unique_ptr<Transport> {
          while (!*over) std::this_thread::sleep_for(milliseconds(1));
          return nullptr;
        },
        {.patience = milliseconds(200)});
  } catch (const Error& error) {
    message = error.message();
  }
  *over = true;
  EXPECT_NE(message.find("not all instances have joined this one on " + host()), std::string::npos)
      << message;
  EXPECT_NE(message.find("TESSERA_INSTANCE_TIMEOUT"), std::string::npos);
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(10));
}

TEST(Link, ThoseWhoWaitForEachOtherAreSaved) {
  const auto ends = run(2, [](Link& link) {
    if (link.index() == 0) return add_up(link, link.open_program("'it'"), 0, 30);
    link.barrier({}, "a barrier", {});
  });
  for (const std::string& end : ends) {
    EXPECT_NE(end.find("waits in update 1 of 'it'"), std::string::npos) << end;
    EXPECT_NE(end.find("waits in a barrier"), std::string::npos) << end;
  }
}

TEST(Link, OneThatDoesNotAnswerIsGivenUp) {
  LocalNetwork network(3);
  std::atomic<int> ready = 0;
  std::atomic<bool> over = false;
  const auto ends = run(
      3,
      [&](Link& link) {
        if (++ready == 3) network.cut(1);
        while (ready < 3) std::this_thread::sleep_for(milliseconds(1));
        if (link.index() == 1) {
          while (!over) std::this_thread::sleep_for(milliseconds(1));
          fail(ErrorKind::user, "cut off");
        }
        try {
          add_up(link, link.open_program("'it'"), 0, 30);
        } catch (const Error&) {
          over = true;
          throw;
        }
      },
      &network);
  EXPECT_NE(ends[0].find("instance 1 on " + host() + " has not answered for"), std::string::npos)
      << ends[0];
  EXPECT_NE(ends[0].find("TESSERA_INSTANCE_TIMEOUT"), std::string::npos);
}

TEST(Link, OneThatIsBusyForTooLongIsGivenUpToo) {
  std::atomic<bool> over = false;
  const auto ends = run(2, [&](Link& link) {
    if (link.index() == 1) {
      while (!over) std::this_thread::sleep_for(milliseconds(1));
      return;
    }
    try {
      link.barrier({}, "a barrier", {});
    } catch (const Error&) {
      over = true;
      throw;
    }
  });
  EXPECT_NE(ends[0].find("instance 1 on " + host() + " has not come to a barrier for"),
            std::string::npos)
      << ends[0];
  EXPECT_NE(ends[0].find("it is busy with something else"), std::string::npos);
}

// Slower than others is not away: whoever comes within the time is waited for.
TEST(Link, WhoeverIsLateIsWaitedFor) {
  EXPECT_EQ(run(3,
                [](Link& link) {
                  std::this_thread::sleep_for(milliseconds(300) * link.index());
                  add_up(link, link.open_program("'it'"), 0, 300);
                }),
            nobody_failed);
}

TEST(Link, WhoeverWaitsCanGiveUp) {
  struct GivenUp {};
  std::atomic<bool> over = false;
  const auto ends = run(2, [&](Link& link) {
    if (link.index() == 1) {
      while (!over) std::this_thread::sleep_for(milliseconds(1));
      return;
    }
    std::vector<float> values(300, 1);
    EXPECT_THROW(link.reduce({}, "it", Reduction::sum, DType::f32, bytes_of(values),
                             [] { throw GivenUp(); }),
                 GivenUp);
    over = true;
    fail(ErrorKind::user, "interrupted");
  });
  EXPECT_EQ(ends[0], "interrupted");
}

TEST(Link, AForkIsNoInstance) {
  run(2, [](Link& link) {
    const pid_t child = fork();
    if (child == 0) {
      try {
        link.barrier({}, "the child's", {});
      } catch (const Error& error) {
        _exit(error.message().find("forked") == std::string::npos ? 2 : 0);
      }
      _exit(1);
    }
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
    link.barrier({}, "the parent's", {});
  });
}

}  // namespace
}  // namespace tessera::dist
