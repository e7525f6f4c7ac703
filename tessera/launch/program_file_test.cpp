#include "tessera/launch/program_file.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>

namespace tessera {
namespace {

namespace fs = std::filesystem;

class ProgramFile : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = fs::temp_directory_path() / "tessera-program-XXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    before_ = fs::current_path();
    fs::current_path(name);
  }
  void TearDown() override {
    const fs::path folder = fs::current_path();
    fs::current_path(before_);
    fs::remove_all(folder);
  }
  void make(const std::string& name, bool executable) {
    std::ofstream(name) << "#!/bin/sh\n";
    if (executable) fs::permissions(name, fs::perms::owner_all);
  }

  fs::path before_;
};

TEST_F(ProgramFile, IsLookedUpAsShellsDo) {
  make("run", true);
  EXPECT_FALSE(problem_with_program("./run", ""));
  EXPECT_FALSE(problem_with_program("run", "/nowhere:" + fs::current_path().string()));
  EXPECT_EQ(find_on_path("run", "/nowhere:."), "./run");
  EXPECT_EQ(find_on_path("run", "/nowhere"), "");
}

TEST_F(ProgramFile, WhatIsWrongIsASentence) {
  make("run", true);
  make("train.py", false);
  make("tool", false);
  EXPECT_EQ(problem_with_program("./none", "/bin")->sentence, "there is no program './none'");
  EXPECT_EQ(problem_with_program("none", "/bin")->sentence, "there is no program 'none' on PATH");
  EXPECT_EQ(problem_with_program("none", "/bin")->exit_code, 127);
  EXPECT_EQ(problem_with_program("run", "/bin")->sentence,
            "there is no program 'run' on PATH; for the file here write ./run");
  EXPECT_EQ(problem_with_program("train.py", "/bin")->sentence,
            "'train.py' is not executable; write `poprun ... python3 train.py`");
  EXPECT_EQ(problem_with_program("./tool", "/bin")->sentence,
            "'./tool' is not executable; `chmod +x ./tool` makes it so");
  EXPECT_EQ(problem_with_program("./tool", "/bin")->exit_code, 126);
  EXPECT_EQ(problem_with_program(".", "/bin")->sentence, "'.' is a folder, not a program");
}

}  // namespace
}  // namespace tessera
