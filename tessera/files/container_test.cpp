#include "tessera/files/container.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <random>

#include "tessera/base/error.h"
#include "tessera/base/replace_file.h"
#include "tessera/files/checksum.h"

namespace tessera {
namespace {

using Bytes = std::vector<std::byte>;

// Where the header has what, as container.h says.
constexpr size_t version_at = 8, count_at = 12, file_size_at = 16, table_size_at = 24,
                 checksum_at = 56, table_at = 64;

std::span<const std::byte> as_bytes(std::string_view text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

std::string_view as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

Bytes small_file() {
  const std::vector<Section> sections = {
      {"text", as_bytes("some words")}, {"none", {}}, {"more/0", as_bytes("a few others")}};
  return container_bytes(sections);
}

Container opened(const Bytes& bytes) { return Container("a file", bytes, nullptr); }

// What is wrong with a file; empty where nothing is.
std::string complaint(const Bytes& bytes) {
  try {
    opened(bytes).check_all();
    return "";
  } catch (const Error& error) {
    return error.message();
  }
}

template <typename T>
void put(Bytes& bytes, size_t at, T value) {
  std::memcpy(bytes.data() + at, &value, sizeof value);
}

// After a change of the header or the table, as somebody would do who wants to be believed.
void make_believable(Bytes& bytes) {
  const std::string_view header = as_text(bytes).substr(version_at, checksum_at - version_at);
  uint64_t table_size = 0;
  std::memcpy(&table_size, bytes.data() + table_size_at, sizeof table_size);
  const std::string_view table = as_text(bytes).substr(table_at, table_size);
  put(bytes, checksum_at, checksum(table, checksum(header)));
}

TEST(Container, GivesBackItsSections) {
  const Bytes bytes = small_file();
  const Container container = opened(bytes);
  ASSERT_EQ(container.entries().size(), 3U);
  EXPECT_EQ(container.text("text"), "some words");
  EXPECT_EQ(container.text("none"), "");
  EXPECT_EQ(container.text("more/0"), "a few others");
  EXPECT_FALSE(container.has("more"));
  EXPECT_TRUE(container.producer().starts_with("tessera "));
  for (const auto& entry : container.entries()) EXPECT_EQ(entry.offset % 64, 0U);
}

TEST(Container, MayBeEmpty) {
  const Bytes bytes = container_bytes({});
  EXPECT_TRUE(opened(bytes).entries().empty());
}

TEST(Container, NamesTheSectionThatIsMissing) {
  const Bytes bytes = small_file();
  try {
    opened(bytes).section("graph");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.message(), "'a file' has no section 'graph'");
  }
}

TEST(Container, NoticesEveryLengthThatIsNotItsOwn) {
  Bytes bytes = small_file();
  const size_t whole = bytes.size();
  for (size_t size = 0; size < whole; ++size) {
    const Bytes cut(bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(size));
    const std::string said = complaint(cut);
    EXPECT_NE(said.find(size < 8    ? "begins with other bytes"
                        : size < 64 ? "fewer than its header alone"
                                    : "it was cut short"),
              std::string::npos)
        << size << ": " << said;
  }
  bytes.push_back({});
  EXPECT_NE(complaint(bytes).find("1 more than it says"), std::string::npos);
}

TEST(Container, NoticesEveryByteThatIsAnother) {
  const Bytes bytes = small_file();
  for (size_t at = 0; at < bytes.size(); ++at) {
    for (const int bits : {1, 0x80, 0xff}) {
      Bytes other = bytes;
      other[at] ^= static_cast<std::byte>(bits);
      EXPECT_NE(complaint(other), "") << "byte " << at;
    }
  }
}

TEST(Container, SaysWhichVersionItReads) {
  Bytes bytes = small_file();
  put(bytes, version_at, uint32_t{7});
  make_believable(bytes);
  const std::string said = complaint(bytes);
  EXPECT_NE(said.find("is of version 7 of the format, written by 'tessera "), std::string::npos);
  EXPECT_NE(said.find("which reads version 1"), std::string::npos) << said;
}

TEST(Container, DoesNotBelieveNumbersOfItsTable) {
  const uint64_t first_offset = table_at, first_size = table_at + 8, first_name = table_at + 24;
  struct Case {
    size_t at;
    uint64_t value;
    const char* said;
  };
  const std::vector<Case> cases = {
      {table_size_at, uint64_t{1} << 62, "its table of 4611686018427387904 bytes is larger"},
      {file_size_at, uint64_t{1} << 62, "it was cut short"},
      {first_offset, 0, "section 'text' is at 0, not at 192"},
      {first_offset, ~uint64_t{0}, "section 'text' is at 18446744073709551615"},
      {first_size, ~uint64_t{0}, "section 'text' has 18446744073709551615 bytes at 192"},
      {first_size, 70, "section 'none' is at 256, not at 320"},
      {first_name, ~uint64_t{0}, "the name of section 0 is cut"},
      {first_name, 0, "section 0 has no name"}};
  for (const Case& wrong : cases) {
    Bytes bytes = small_file();
    put(bytes, wrong.at, wrong.value);
    if (wrong.at != table_size_at) make_believable(bytes);
    EXPECT_NE(complaint(bytes).find(wrong.said), std::string::npos) << complaint(bytes);
  }
}

TEST(Container, CountsItsSections) {
  Bytes bytes = small_file();
  put(bytes, count_at, ~uint32_t{0});
  make_believable(bytes);
  EXPECT_NE(complaint(bytes).find("3 of 4294967295 sections are there"), std::string::npos);
  put(bytes, count_at, uint32_t{2});
  make_believable(bytes);
  EXPECT_NE(complaint(bytes).find("belong to no section"), std::string::npos);
}

TEST(Container, HasEachNameOnce) {
  const std::vector<Section> sections = {{"one", as_bytes("a")}, {"one", as_bytes("b")}};
  EXPECT_NE(complaint(container_bytes(sections)).find("there are two sections 'one'"),
            std::string::npos);
}

TEST(Container, HidesNothingBetweenSections) {
  Bytes bytes = small_file();
  const auto entries = opened(bytes).entries();
  bytes[entries[0].offset + entries[0].size] = std::byte{1};
  EXPECT_NE(complaint(bytes).find("something before section 'none'"), std::string::npos);
}

// Tables of random numbers, most of them nearly right, with the checksums that fit them.
TEST(Container, ReadsOrRefusesAnyTable) {
  const Bytes whole = small_file();
  std::mt19937_64 draw(1);
  const auto below = [&](uint64_t end) { return draw() % end; };
  for (int round = 0; round < 20000; ++round) {
    Bytes bytes = whole;
    for (uint64_t changes = 1 + below(4); changes > 0; --changes) {
      const auto field = (1 + below(20)) * 8;
      const uint64_t numbers[] = {
          0, 1, 64, 128, 256, 320, bytes.size(), ~uint64_t{0}, uint64_t{1} << 63, below(513)};
      put(bytes, field, numbers[below(10)]);
    }
    uint64_t table_size = 0;
    std::memcpy(&table_size, bytes.data() + table_size_at, sizeof table_size);
    if (table_size <= bytes.size() - table_at) make_believable(bytes);
    complaint(bytes);  // and nothing else happens
  }
}

class ContainerFile : public ::testing::Test {
 protected:
  void SetUp() override { std::filesystem::create_directory(folder_); }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  static std::string complaint(const std::string& path) {
    try {
      Container{path};
      return "";
    } catch (const Error& error) {
      return error.message();
    }
  }

  const std::filesystem::path folder_ =
      std::filesystem::temp_directory_path() / ("tessera_container_" + std::to_string(getpid()));
  const std::string path_ = folder_ / "file";
};

TEST_F(ContainerFile, IsWrittenAndRead) {
  const std::vector<Section> sections = {{"text", as_bytes("some words")}};
  write_container(path_, sections);
  write_container(path_, sections);  // in the place of the first
  const Container container(path_);
  EXPECT_EQ(container.text("text"), "some words");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_), {}), 1);
}

// A large file takes no memory of its own, and its tensors lie as kernels like them.
TEST_F(ContainerFile, IsMappedWhereItIsLarge) {
  const std::vector<std::byte> large(size_t{3} << 20, std::byte{7});
  write_container(path_, std::vector<Section>{{"text", as_bytes("some words")}, {"large", large}});
  const Container container(path_);
  EXPECT_EQ(container.text("text"), "some words");
  const auto section = container.section("large");
  EXPECT_EQ(section.size(), large.size());
  EXPECT_EQ(reinterpret_cast<uintptr_t>(section.data()) % 64, 0U);
  EXPECT_EQ(section[section.size() - 1], std::byte{7});
}

TEST_F(ContainerFile, StaysWhenItIsReplaced) {
  write_container(path_, std::vector<Section>{{"text", as_bytes("old")}});
  const Container old(path_);
  write_container(path_, std::vector<Section>{{"text", as_bytes("new")}});
  EXPECT_EQ(old.text("text"), "old");
  EXPECT_EQ(Container(path_).text("text"), "new");
}

TEST_F(ContainerFile, SaysWhyItCannotBeRead) {
  EXPECT_EQ(complaint(path_), "cannot read '" + path_ + "': No such file or directory");
  EXPECT_EQ(complaint(folder_), "cannot read '" + folder_.string() + "': it is a folder");
  ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);
  EXPECT_EQ(complaint(path_), "cannot read '" + path_ + "': it is no file");
  std::filesystem::remove(path_);
  for (const char* other : {"", "\x89TS", "PK\x03\x04 a pickle of PyTorch's", "graph \"step\" {"}) {
    ASSERT_TRUE(replace_file(path_, other));
    EXPECT_EQ(complaint(path_),
              "'" + path_ + "' is no file of Tessera's: it begins with other bytes");
  }
}

TEST_F(ContainerFile, SaysWhyItCannotBeWritten) {
  try {
    write_container(folder_ / "missing/file", {});
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(error.message().find("cannot be written: No such file or directory"),
              std::string::npos);
  }
}

}  // namespace
}  // namespace tessera
