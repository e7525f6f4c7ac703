#include "tessera/launch/options_file.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "tessera/base/error.h"

namespace tessera {
namespace {

using Given = std::vector<GivenOption>;

class OptionsFile : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = std::filesystem::temp_directory_path() / "tessera-options-XXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
    path_ = folder_ / "options.json";
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  void write(const std::string& text) { std::ofstream(path_) << text; }
  std::string written() {
    std::ostringstream text;
    text << std::ifstream(path_).rdbuf();
    return text.str();
  }
  std::string refusal(const std::string& text) {
    write(text);
    try {
      import_options(path_);
    } catch (const Error& error) {
      return error.message();
    }
    return {};
  }

  std::filesystem::path folder_;
  std::string path_;
};

// spec: 8.3 export-config, 8.3 import-config
TEST_F(OptionsFile, IsReadAsItWasWritten) {
  const Given given = {{"num-replicas", "4"},
                       {"offline-mode", "no"},
                       {"vv", ""},
                       {"mpi-global-args", "--mca a b"},
                       {"host", "a,b"},
                       {"mpi-global-args", "x"},
                       {"instance-timeout", "2.5"},
                       {"export-config", "f"},
                       {"dry-run", ""}};
  export_options(path_, given, false);
  EXPECT_EQ(written(), R"({
  "num-replicas": 4,
  "offline-mode": false,
  "vv": true,
  "mpi-global-args": [
    "--mca a b",
    "x"
  ],
  "host": "a,b",
  "instance-timeout": 2.5
}
)");
  EXPECT_EQ(import_options(path_), (Given{{"num-replicas", "4"},
                                          {"offline-mode", "no"},
                                          {"vv", ""},
                                          {"mpi-global-args", "--mca a b"},
                                          {"mpi-global-args", "x"},
                                          {"host", "a,b"},
                                          {"instance-timeout", "2.5"}}));
}

// spec: 8.3 overwrite-config
TEST_F(OptionsFile, IsNotOverwrittenUnasked) {
  write("mine");
  EXPECT_THROW(export_options(path_, {}, false), Error);
  EXPECT_EQ(written(), "mine");
  export_options(path_, {}, true);
  EXPECT_EQ(written(), "{}\n");
  EXPECT_THROW(export_options(folder_ / "no/where", {}, false), Error);
}

TEST_F(OptionsFile, MistakesAreSentences) {
  EXPECT_THROW(import_options(folder_ / "missing"), Error);
  EXPECT_THROW(import_options(folder_), Error);
  EXPECT_NE(refusal("{").find("must hold a JSON object"), std::string::npos);
  EXPECT_NE(refusal("[1]").find("must hold a JSON object"), std::string::npos);
  EXPECT_NE(refusal(R"({"num-replica": 1})").find("'num-replica' in"), std::string::npos);
  EXPECT_NE(refusal(R"({"import-config": "x"})").find("is no option that a file may have"),
            std::string::npos);
  EXPECT_NE(refusal(R"({"num-replicas": true})").find("cannot be true"), std::string::npos);
  EXPECT_NE(refusal(R"({"host": ["a"]})").find("cannot be [\"a\"]"), std::string::npos);
  EXPECT_NE(refusal(R"({"vv": 1})").find("must be true or false"), std::string::npos);
  EXPECT_EQ(refusal(R"({"num-replicas": "4", "verbose": false})"), "");
}

TEST(OptionsOfFiles, TheCommandLineWins) {
  EXPECT_EQ(with_defaults({{"host", "a"}}, {{"host", "b"}, {"num-replicas", "2"}}),
            (Given{{"num-replicas", "2"}, {"host", "a"}}));
}

}  // namespace
}  // namespace tessera
