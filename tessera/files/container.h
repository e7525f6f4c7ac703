// A file of named sections. Numbers are little-endian:
//
//   bytes  0  8   what every such file begins with
//          8  4   the version of this format
//         12  4   how many sections there are
//         16  8   the size of the file
//         24  8   the size of the table
//         32 24   who wrote it: "tessera 0.1.0", then zeros
//         56  8   the checksum of bytes 8 to 56 and of the table
//         64      the table: for each section its offset, size, checksum and the length of its
//                 name, 8 bytes each, then its name
//                 the sections in the order of the table, each at the next multiple of 64, with
//                 zeros between
//
// So there is one place where a section can be, and no byte that means nothing. Checksums (XXH3)
// find damage, not forgery: who reads a section trusts nothing in it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace tessera {

inline constexpr uint32_t container_version = 1;

struct Section {
  std::string name;
  std::span<const std::byte> bytes;
};

// The whole file is there or what was there before; Error where it cannot be written.
void write_container(const std::string& path, std::span<const Section> sections);

// The same as bytes.
std::vector<std::byte> container_bytes(std::span<const Section> sections);

class Container {
 public:
  struct Entry {
    std::string name;
    uint64_t offset = 0, size = 0, checksum = 0;
  };

  // Reads the table. Error where the file cannot be read, is of another kind or version, or is
  // damaged: one sentence with its path, what was wanted and what came.
  explicit Container(const std::string& path);

  // Bytes in memory, which `owner` keeps; `name` stands in messages.
  Container(std::string name, std::span<const std::byte> bytes, std::shared_ptr<const void> owner);

  const std::string& path() const { return path_; }
  const std::string& producer() const { return producer_; }  // "tessera 0.1.0"
  uint64_t size() const { return bytes_.size(); }
  const std::vector<Entry>& entries() const { return entries_; }

  bool has(std::string_view name) const { return find(name) != nullptr; }

  // Where the section lies; valid as long as owner(). Its checksum is
  // compared every time. Error where there is none of that name, or it is damaged.
  std::span<const std::byte> section(std::string_view name) const;
  std::string_view text(std::string_view name) const;
  const std::shared_ptr<const void>& owner() const { return owner_; }

  // Error where any section is damaged.
  void check_all() const;

 private:
  void read_header();
  void read_table(uint64_t size, uint32_t count);
  const Entry* find(std::string_view name) const;
  std::span<const std::byte> checked(const Entry& entry) const;

  std::string path_;
  std::shared_ptr<const void> owner_;
  std::span<const std::byte> bytes_;
  std::string producer_;
  std::vector<Entry> entries_;
  std::unordered_map<std::string, size_t> numbers_;  // of entries, by their names
};

}  // namespace tessera
