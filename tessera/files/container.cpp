#include "tessera/files/container.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>

#include "tessera/base/error.h"
#include "tessera/base/replace_file.h"
#include "tessera/files/checksum.h"
#include "tessera/files/mapped_file.h"

namespace tessera {
namespace {

static_assert(std::endian::native == std::endian::little, "files are little-endian");

// Not text, and changed by whatever takes it for text.
constexpr std::array<char, 8> magic = {'\x89', 'T', 'S', 'R', '\r', '\n', '\x1a', '\n'};
constexpr std::string_view producer_now = "tessera " TESSERA_VERSION;
constexpr size_t alignment = 64;

struct Header {
  std::array<char, 8> magic = tessera::magic;
  uint32_t version = container_version;
  uint32_t sections = 0;
  uint64_t file_size = 0;
  uint64_t table_size = 0;
  std::array<char, 24> producer = {};
  uint64_t checksum = 0;
};
static_assert(sizeof(Header) == 64 && producer_now.size() < sizeof(Header::producer));

struct TableRow {
  uint64_t offset = 0, size = 0, checksum = 0, name_size = 0;
};

uint64_t table_checksum(const Header& header, std::string_view table) {
  const auto* start = reinterpret_cast<const char*>(&header);
  const std::string_view checked(start + sizeof header.magic,
                                 offsetof(Header, checksum) - sizeof header.magic);
  return checksum(table, checksum(checked));
}

bool is_printable(char c) { return c >= ' ' && c <= '~'; }

bool is_name(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), is_printable);
}

std::string_view as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

uint64_t place_after(uint64_t end) { return (end + alignment - 1) / alignment * alignment; }

// Header and table of a file with these sections.
std::string beginning_of(std::span<const Section> sections) {
  Header header;
  std::copy(producer_now.begin(), producer_now.end(), header.producer.begin());
  header.sections = static_cast<uint32_t>(sections.size());
  for (const Section& section : sections) {
    TESSERA_INVARIANT(is_name(section.name), "'{}' is no name of a section", section.name);
    header.table_size += sizeof(TableRow) + section.name.size();
  }

  std::string table;
  uint64_t end = sizeof header + header.table_size;
  for (const Section& section : sections) {
    const TableRow row{.offset = place_after(end),
                       .size = section.bytes.size(),
                       .checksum = checksum(section.bytes),
                       .name_size = section.name.size()};
    table.append(reinterpret_cast<const char*>(&row), sizeof(TableRow));
    table += section.name;
    end = row.offset + row.size;
  }
  header.file_size = end;
  header.checksum = table_checksum(header, table);
  return std::string(reinterpret_cast<const char*>(&header), sizeof header) + table;
}

// A file's bytes in order; the first is `beginning`.
std::vector<std::string_view> pieces_of(std::string_view beginning,
                                        std::span<const Section> sections) {
  static constexpr std::array<char, alignment> zeros = {};
  std::vector<std::string_view> pieces = {beginning};
  uint64_t end = beginning.size();
  for (const Section& section : sections) {
    pieces.emplace_back(zeros.data(), place_after(end) - end);
    pieces.push_back(as_text(section.bytes));
    end = place_after(end) + section.bytes.size();
  }
  return pieces;
}

}  // namespace

void write_container(const std::string& path, std::span<const Section> sections) {
  const std::string beginning = beginning_of(sections);
  const bool written = replace_file(path, pieces_of(beginning, sections), Sync::yes);
  const int reason = errno;
  check(written, ErrorKind::value,
        "'{}' cannot be written: {}; is the folder there and writable, and is there space?", path,
        std::strerror(reason));
}

std::vector<std::byte> container_bytes(std::span<const Section> sections) {
  const std::string beginning = beginning_of(sections);
  std::vector<std::byte> bytes;
  for (const std::string_view piece : pieces_of(beginning, sections)) {
    const auto* start = reinterpret_cast<const std::byte*>(piece.data());
    bytes.insert(bytes.end(), start, start + piece.size());
  }
  return bytes;
}

Container::Container(const std::string& path) : path_(path) {
  const auto file = std::make_shared<const MappedFile>(path);
  bytes_ = file->bytes();
  owner_ = file;
  read_header();
}

Container::Container(std::string name, std::span<const std::byte> bytes,
                     std::shared_ptr<const void> owner)
    : path_(std::move(name)), owner_(std::move(owner)), bytes_(bytes) {
  read_header();
}

void Container::read_header() {
  Header header;
  const bool ours =
      bytes_.size() >= sizeof magic && std::memcmp(bytes_.data(), magic.data(), sizeof magic) == 0;
  check(ours, ErrorKind::value, "'{}' is no file of Tessera's: it begins with other bytes", path_);
  check(bytes_.size() >= sizeof header, ErrorKind::value,
        "'{}' is damaged: it has {} bytes, fewer than its header alone", path_, bytes_.size());
  std::memcpy(&header, bytes_.data(), sizeof header);
  producer_.assign(header.producer.begin(),
                   std::find(header.producer.begin(), header.producer.end(), '\0'));
  std::replace_if(
      producer_.begin(), producer_.end(), [](char c) { return !is_printable(c); }, '?');
  check(header.version == container_version, ErrorKind::value,
        "'{}' is of version {} of the format, written by '{}'; this is {}, which reads version {}",
        path_, header.version, producer_, producer_now, container_version);
  check(header.file_size <= bytes_.size(), ErrorKind::value,
        "'{}' is damaged: it was cut short, {} of its {} bytes are there", path_, bytes_.size(),
        header.file_size);
  check(header.file_size >= bytes_.size(), ErrorKind::value,
        "'{}' is damaged: it has {} bytes, {} more than it says", path_, bytes_.size(),
        bytes_.size() - header.file_size);
  check(header.table_size <= bytes_.size() - sizeof header, ErrorKind::value,
        "'{}' is damaged: its table of {} bytes is larger than the file", path_, header.table_size);
  const std::string_view table = as_text(bytes_.subspan(sizeof header, header.table_size));
  check(header.checksum == table_checksum(header, table), ErrorKind::value,
        "'{}' is damaged: the checksum of its table is not that of the bytes", path_);
  read_table(header.table_size, header.sections);
}

void Container::read_table(uint64_t size, uint32_t count) {
  const auto fail_with = [&](std::string_view what) {
    fail(ErrorKind::value, "'{}' is damaged: in its table, {}", path_, what);
  };
  std::span<const std::byte> table = bytes_.subspan(sizeof(Header), size);
  uint64_t end = sizeof(Header) + size;
  for (uint32_t i = 0; i < count; ++i) {
    if (table.size() < sizeof(TableRow)) {
      fail_with(fmt::format("{} of {} sections are there", i, count));
    }
    TableRow row;
    std::memcpy(&row, table.data(), sizeof(TableRow));
    table = table.subspan(sizeof(TableRow));
    if (row.name_size > table.size()) fail_with(fmt::format("the name of section {} is cut", i));
    std::string name(as_text(table.first(row.name_size)));
    table = table.subspan(row.name_size);
    if (!is_name(name)) fail_with(fmt::format("section {} has no name", i));
    if (row.offset != place_after(end)) {
      fail_with(fmt::format("section '{}' is at {}, not at {}, where the one before it ends", name,
                            row.offset, place_after(end)));
    }
    if (row.offset > bytes_.size() || row.size > bytes_.size() - row.offset) {
      fail_with(fmt::format("section '{}' has {} bytes at {}, of a file of {}", name, row.size,
                            row.offset, bytes_.size()));
    }
    const auto between = bytes_.subspan(end, row.offset - end);
    if (std::any_of(between.begin(), between.end(), [](std::byte b) { return b != std::byte{}; })) {
      fail_with(fmt::format("there is something before section '{}' that belongs to none", name));
    }
    if (!numbers_.emplace(name, i).second) {
      fail_with(fmt::format("there are two sections '{}'", name));
    }
    end = row.offset + row.size;
    entries_.push_back({std::move(name), row.offset, row.size, row.checksum});
  }
  if (!table.empty()) fail_with(fmt::format("{} bytes belong to no section", table.size()));
  if (end != bytes_.size()) {
    fail_with(fmt::format("the last section ends at {}, the file at {}", end, bytes_.size()));
  }
}

const Container::Entry* Container::find(std::string_view name) const {
  const auto at = numbers_.find(std::string(name));
  return at == numbers_.end() ? nullptr : &entries_[at->second];
}

std::span<const std::byte> Container::section(std::string_view name) const {
  const Entry* entry = find(name);
  check(entry, ErrorKind::value, "'{}' has no section '{}'", path_, name);
  return checked(*entry);
}

std::string_view Container::text(std::string_view name) const { return as_text(section(name)); }

std::span<const std::byte> Container::checked(const Entry& entry) const {
  const auto bytes = bytes_.subspan(entry.offset, entry.size);
  check(checksum(bytes) == entry.checksum, ErrorKind::value,
        "'{}' is damaged: the checksum of its section '{}' is not that of the bytes", path_,
        entry.name);
  return bytes;
}

void Container::check_all() const {
  for (const Entry& entry : entries_) checked(entry);
}

}  // namespace tessera
