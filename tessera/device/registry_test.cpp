#include "tessera/device/registry.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <set>
#include <string>
#include <thread>

#include "tessera/base/error.h"
#include "tessera/base/log.h"
#include "tessera/device/ipu_locks.h"

namespace tessera {
namespace {

extern "C" char** environ;

const std::vector<DeviceInfo> ones = devices_of_size(16, 1);

std::optional<Device> take(int64_t id) {
  return try_acquire(std::array{*device_of_id(16, id)}, "test model");
}

class Registry : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = std::filesystem::temp_directory_path() / "tessera-registry-XXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
    setenv("TESSERA_DEVICE_DIR", name.c_str(), 1);
  }
  void TearDown() override {
    unsetenv("TESSERA_DEVICE_DIR");
    std::filesystem::permissions(folder_, std::filesystem::perms::owner_all);
    std::filesystem::remove_all(folder_);
  }
  std::filesystem::path file() const { return folder_ / "ipus"; }

  std::filesystem::path folder_;
};

// A child that does something, says so, and then waits to be killed.
class Child {
 public:
  explicit Child(const std::function<void()>& work) {
    int ends[2];
    EXPECT_EQ(pipe(ends), 0);
    pid_ = fork();
    if (pid_ == 0) {
      work();
      [[maybe_unused]] const ssize_t told = write(ends[1], "x", 1);
      for (;;) pause();
    }
    close(ends[1]);
    char byte;
    EXPECT_EQ(read(ends[0], &byte, 1), 1);
    close(ends[0]);
  }
  ~Child() { end(); }
  void end() {
    if (pid_ > 0) kill(pid_, SIGKILL), waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_;
};

// What `work` says in a child of its own: others than this process.
bool in_a_child(const std::function<bool()>& work) {
  const pid_t pid = fork();
  if (pid == 0) _exit(work() ? 0 : 1);
  int status = 0;
  waitpid(pid, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

TEST_F(Registry, ADeviceIsForOneUntilItIsGivenBack) {
  auto first = take(0);
  ASSERT_TRUE(first && first->is_held());
  EXPECT_FALSE(take(0));
  EXPECT_TRUE(take(1));
  EXPECT_FALSE(in_a_child([] { return take(0).has_value(); }));
  EXPECT_TRUE(in_a_child([] { return take(1).has_value(); }));
  first->release();
  EXPECT_FALSE(first->is_held());
  EXPECT_TRUE(in_a_child([] { return take(0).has_value(); }));
  EXPECT_TRUE(take(0));
}

TEST_F(Registry, GroupsHaveTheirIpusForThemselves) {
  const auto four = take(24);  // IPUs 0 to 3
  ASSERT_TRUE(four);
  EXPECT_EQ(four->ipus(), (IpuGroup{0, 4}));
  for (int64_t id : {0, 3, 16, 17, 28, 30}) {
    EXPECT_FALSE(take(id)) << id;
    EXPECT_FALSE(in_a_child([id] { return take(id).has_value(); })) << id;
  }
  for (int64_t id : {4, 18, 25, 29}) EXPECT_TRUE(take(id)) << id;
  const auto any_pair = try_acquire(devices_of_size(16, 2), "");
  ASSERT_TRUE(any_pair);
  EXPECT_EQ(any_pair->id(), 18);
}

TEST_F(Registry, EveryDeviceOfEveryIdCanBeTaken) {
  for (int64_t id = 0; id <= 30; ++id) {
    const auto device = take(id);
    ASSERT_TRUE(device) << id;
    EXPECT_EQ(attachments(16).size(), static_cast<size_t>(device->ipus().count));
  }
}

TEST_F(Registry, OthersSeeWhoHasIt) {
  const Child child([] { new std::optional<Device>(take(16)); });
  const auto attached = attachments(16);
  ASSERT_EQ(attached.size(), 2u);
  for (const Attachment& attachment : attached) {
    EXPECT_FALSE(attachment.is_ours);
    EXPECT_EQ(attachment.user.pid, child.pid());
    EXPECT_EQ(attachment.user.device, 16);
    EXPECT_EQ(attachment.user.ipus, (IpuGroup{0, 2}));
    EXPECT_EQ(attachment.user.purpose, "test model");
    EXPECT_NE(attachment.user.command.find("test"), std::string::npos);
    EXPECT_FALSE(attachment.user.user.empty());
  }
  const auto own = take(2);
  ASSERT_EQ(attachments(16).size(), 3u);
  EXPECT_TRUE(attachments(16)[2].is_ours);
}

TEST_F(Registry, DeathGivesItBackAtOnce) {
  Child child([] { new std::optional<Device>(take(0)); });
  EXPECT_FALSE(take(0));
  child.end();
  EXPECT_TRUE(take(0));
  EXPECT_TRUE(attachments(16).empty());
}

// A loader's workers may outlive the process that was killed.
TEST_F(Registry, ForkedChildrenDoNotKeepTheDeviceOfTheirParent) {
  auto* const grandchild = static_cast<pid_t*>(
      mmap(nullptr, sizeof(pid_t), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  Child child([&] {
    auto* const device = new std::optional<Device>(take(0));
    const pid_t pid = fork();
    if (pid == 0) {
      if ((*device)->is_held() || !(*device)->is_lost()) _exit(1);
      for (;;) pause();
    }
    *grandchild = pid;
  });
  EXPECT_FALSE(take(0));
  child.end();
  EXPECT_EQ(kill(*grandchild, 0), 0);  // it is alive
  EXPECT_TRUE(take(0));
  kill(*grandchild, SIGKILL);
  munmap(grandchild, sizeof(pid_t));
}

TEST_F(Registry, StartedProgramsDoNotKeepTheDeviceOfTheirParent) {
  auto* const program = static_cast<pid_t*>(
      mmap(nullptr, sizeof(pid_t), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  Child child([&] {
    new std::optional<Device>(take(0));
    char sleep[] = "sleep", seconds[] = "600";
    char* const arguments[] = {sleep, seconds, nullptr};
    posix_spawnp(program, sleep, nullptr, nullptr, arguments, environ);
  });
  EXPECT_FALSE(take(0));
  child.end();
  EXPECT_EQ(kill(*program, 0), 0);
  EXPECT_TRUE(take(0));
  kill(*program, SIGKILL);
  munmap(program, sizeof(pid_t));
}

TEST_F(Registry, AForkedChildNeitherHasNorLosesTheDeviceOfItsParent) {
  auto device = take(0);
  EXPECT_TRUE(in_a_child([&] {
    if (device->is_held() || !device->is_lost()) return false;
    device->release();  // it is not the child's to give back
    auto other = take(1);
    return other && other->is_held() && !take(0);
  }));
  EXPECT_TRUE(device->is_held());
  EXPECT_FALSE(in_a_child([] { return take(0).has_value(); }));
}

TEST_F(Registry, ThreadsNeverShareADevice) {
  std::array<std::atomic<int>, 4> users = {};
  std::atomic<bool> shared = false;
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      for (int turn = 0; turn < 50; ++turn) {
        auto device = try_acquire(devices_of_size(4, 1), "");
        if (!device) continue;
        auto& user = users[static_cast<size_t>(device->id())];
        if (user.fetch_add(1) != 0) shared = true;
        std::this_thread::yield();
        user.fetch_sub(1);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_FALSE(shared);
}

TEST_F(Registry, FiftyProcessesNeverShareADevice) {
  struct Shared {
    std::array<std::atomic<int>, 16> users;
    std::atomic<int> collisions, taken;
  };
  auto* const shared = static_cast<Shared*>(
      mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  std::vector<pid_t> children;
  for (int i = 0; i < 50; ++i) {
    const pid_t pid = fork();
    if (pid != 0) {
      children.push_back(pid);
      continue;
    }
    for (int turn = 0; turn < 40; ++turn) {
      const int64_t size = 1 << ((i + turn) % 3);
      auto device = try_acquire(devices_of_size(16, size), "");
      if (!device) continue;
      ++shared->taken;
      const IpuGroup ipus = device->ipus();
      for (int64_t k = 0; k < ipus.count; ++k) {
        if (shared->users[static_cast<size_t>(ipus.first + k)]++ != 0) ++shared->collisions;
      }
      usleep(200);
      for (int64_t k = 0; k < ipus.count; ++k) --shared->users[static_cast<size_t>(ipus.first + k)];
    }
    _exit(0);
  }
  for (const pid_t pid : children) waitpid(pid, nullptr, 0);
  EXPECT_EQ(shared->collisions, 0);
  EXPECT_GT(shared->taken, 100);
  munmap(shared, sizeof(Shared));
}

TEST_F(Registry, WhatIsLeftInTheFileDoesNotMatter) {
  std::ofstream(file()) << std::string(10000, 'x');
  EXPECT_TRUE(attachments(16).empty());
  const Child child([] { new std::optional<Device>(take(0)); });
  EXPECT_EQ(attachments(16).at(0).user.pid, child.pid());
  std::ofstream(file(), std::ios::in | std::ios::out) << "half of a record";
  const auto attached = attachments(16);
  ASSERT_EQ(attached.size(), 1u);
  EXPECT_EQ(attached[0].user.pid, child.pid());  // the kernel knows
  EXPECT_FALSE(attached[0].user.command.empty());
}

TEST_F(Registry, AFullDiskTakesNothingButTheRecord) {
  Child child([] {
    signal(SIGXFSZ, SIG_IGN);
    const rlimit nothing{0, 0};
    setrlimit(RLIMIT_FSIZE, &nothing);
    new std::optional<Device>(take(0));
  });
  EXPECT_FALSE(take(0));
  EXPECT_EQ(attachments(16).at(0).user.pid, child.pid());
}

TEST_F(Registry, AFileThatIsRemovedIsMadeAnewWithWhatWeHave) {
  const auto device = take(3);
  std::filesystem::remove_all(folder_);
  EXPECT_EQ(attachments(16).size(), 1u);  // looks, and finds it gone
  EXPECT_FALSE(in_a_child([] { return take(3).has_value(); }));
  EXPECT_TRUE(device->is_held());
}

TEST_F(Registry, DescriptorsThatSomebodyClosedAreOpenedAnew) {
  EXPECT_TRUE(in_a_child([] {
    auto before = take(3);
    for (int descriptor = 3; descriptor < 256; ++descriptor) close(descriptor);
    const int other = open("/dev/null", O_RDWR);
    auto after = take(4);
    const auto gone = [](int64_t id) { return in_a_child([&] { return take(id).has_value(); }); };
    return other >= 0 && after && !gone(3) && !gone(4);
  }));
}

TEST_F(Registry, AProgramMayGoToAnotherFolder) {
  EXPECT_TRUE(in_a_child([&] {
    std::filesystem::current_path(folder_);
    setenv("TESSERA_DEVICE_DIR", "here", 1);
    const auto device = take(3);
    std::filesystem::current_path("/");
    return device && !take(3) && std::filesystem::exists(folder_ / "here" / "ipus");
  }));
}

TEST_F(Registry, FoldersThatCannotBeUsed) {
  std::filesystem::create_directory(file());  // in place of the file
  const auto message = [] {
    try {
      take(0);
      return std::string();
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::value);
      return error.message();
    }
  };
  EXPECT_NE(message().find("TESSERA_DEVICE_DIR must be a folder"), std::string::npos);
  std::ofstream(folder_ / "text") << "text";
  setenv("TESSERA_DEVICE_DIR", (folder_ / "text").c_str(), 1);
  EXPECT_NE(message().find("is no folder"), std::string::npos);
  setenv("TESSERA_DEVICE_DIR", (folder_ / "not" / "there").c_str(), 1);
  EXPECT_NE(message().find("No such file"), std::string::npos);
  setenv("TESSERA_DEVICE_DIR", (folder_ / "new").c_str(), 1);
  EXPECT_EQ(message(), "");
  struct stat about;
  ASSERT_EQ(stat((folder_ / "new").c_str(), &about), 0);
  EXPECT_EQ(about.st_mode & 0777, 0700u);
}

TEST_F(Registry, FoldersThatOthersCouldHaveMade) {
  const std::string own = folder_ / "own", open_to_all = folder_ / "open", link = folder_ / "link";
  std::filesystem::create_directory(open_to_all);
  std::filesystem::permissions(open_to_all, std::filesystem::perms::all);
  std::filesystem::create_directory_symlink(folder_, link);
  std::string reason;
  EXPECT_EQ(IpuLocks::open({open_to_all, link}, true, reason), nullptr);
  EXPECT_NE(reason.find("can be written by other users"), std::string::npos) << reason;
  EXPECT_NE(reason.find("link' is no folder"), std::string::npos) << reason;
  const auto locks = IpuLocks::open({open_to_all, own}, true, reason);
  ASSERT_TRUE(locks);
  EXPECT_EQ(locks->path(), own + "/ipus");
  if (geteuid() == 0) {  // or nobody can give a folder away
    ASSERT_EQ(chown(own.c_str(), 12345, 12345), 0);
    EXPECT_EQ(IpuLocks::open({own}, true, reason), nullptr);
    EXPECT_NE(reason.find("belongs to another user"), std::string::npos) << reason;
  }
}

TEST_F(Registry, WithoutAnyFolderAProcessIsAlone) {
  if (geteuid() != 0) GTEST_SKIP() << "only root may have another root folder, without /tmp";
  EXPECT_TRUE(in_a_child([&] {
    unsetenv("TESSERA_DEVICE_DIR");
    set_log_level(LogLevel::off);
    if (chroot(folder_.c_str()) != 0) return false;
    const auto device = take(0), other = take(1);
    return device && device->is_held() && !take(0) && other && attachments(16).size() == 2;
  }));
}

TEST(DeviceUser, RecordsAreReadBack) {
  const DeviceUser user{.pid = 17,
                        .command = "python3\ttrain.py " + std::string(1000, 'y'),
                        .user = "eve",
                        .purpose = "training model 'M\nLP'",
                        .since = 1700000000,
                        .device = 24,
                        .ipus = {0, 4}};
  const std::string record = to_record(user, 512);
  EXPECT_LE(record.size(), 512u);
  const auto read = from_record(record);
  ASSERT_TRUE(read);
  EXPECT_EQ(read->pid, 17);
  EXPECT_EQ(read->user, "eve");
  EXPECT_EQ(read->purpose, "training model 'M LP'");
  EXPECT_EQ(read->since, 1700000000);
  EXPECT_EQ(read->device, 24);
  EXPECT_EQ(read->ipus, (IpuGroup{0, 4}));
  EXPECT_TRUE(read->command.starts_with("python3 train.py yyy"));
  for (size_t size = 0; size < record.size(); ++size) {
    EXPECT_FALSE(from_record(record.substr(0, size)));
  }
}

TEST(DeviceUser, Durations) {
  EXPECT_EQ(spoken_duration(-3), "0s");
  EXPECT_EQ(spoken_duration(13), "13s");
  EXPECT_EQ(spoken_duration(125), "2m5s");
  EXPECT_EQ(spoken_duration(3 * 3600 + 240), "3h4m");
  EXPECT_EQ(spoken_duration(49 * 3600), "2d1h");
}

}  // namespace
}  // namespace tessera
