// Files of executables: everything in them is read, and the program lowered. Most mutations keep
// the checksums right, so that what lies behind them is reached.
#include <algorithm>
#include <cstring>
#include <random>

#include "tessera/files/executable_file.h"
#include "tests/readers/refused.h"

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t most);

namespace {

using namespace tessera;

using Bytes = std::vector<std::byte>;

std::span<const std::byte> bytes_at(const uint8_t* data, size_t size) {
  return {reinterpret_cast<const std::byte*>(data), size};
}

struct OwnSection {
  std::string name;
  Bytes bytes;
};

std::vector<OwnSection> sections_of(const uint8_t* data, size_t size) {
  std::vector<OwnSection> sections;
  refused_or([&] {
    const Container container("input", bytes_at(data, size), nullptr);
    for (const Container::Entry& entry : container.entries()) {
      const auto* begin = reinterpret_cast<const std::byte*>(data) + entry.offset;
      sections.push_back({entry.name, Bytes(begin, begin + entry.size)});
    }
  });
  return sections;
}

void mutate_bytes(Bytes& bytes, size_t most) {
  const size_t size = bytes.size();
  bytes.resize(std::max(size + 64, size_t{64}));
  bytes.resize(LLVMFuzzerMutate(reinterpret_cast<uint8_t*>(bytes.data()), size,
                                std::min(bytes.size(), std::max(most, size_t{1}))));
}

bool is_digit(std::byte c) { return c >= std::byte{'0'} && c <= std::byte{'9'}; }

// Whole numbers of a text, as where they begin and end.
std::vector<std::pair<size_t, size_t>> numbers_in(const Bytes& text) {
  std::vector<std::pair<size_t, size_t>> numbers;
  for (size_t at = 0; at < text.size();) {
    size_t end = at;
    while (end < text.size() && is_digit(text[end])) ++end;
    const bool is_size = end > at && at > 0 &&
                         (text[at - 1] == std::byte{'['} || text[at - 1] == std::byte{','} ||
                          text[at - 1] == std::byte{' '});
    if (is_size) numbers.emplace_back(at, end);
    at = std::max(end, at + 1);
  }
  return numbers;
}

// A size that is the same everywhere makes a program of another size: that is how large ones, and
// ones without elements, get past the rules of the operators.
void resize_everywhere(std::vector<OwnSection>& sections, std::mt19937& random) {
  const size_t texts = std::min<size_t>(sections.size(), 4);
  const Bytes& graph = sections[texts - 1].bytes;
  const auto numbers = numbers_in(graph);
  if (numbers.empty()) return;
  const auto [begin, end] = numbers[random() % numbers.size()];
  const Bytes from(graph.begin() + static_cast<ptrdiff_t>(begin),
                   graph.begin() + static_cast<ptrdiff_t>(end));
  static constexpr uint64_t sizes[] = {
      0, 1, 2, 3, 5, 8, 17, 64, 1000, 65536, uint64_t{1} << 31, uint64_t{1} << 40};
  const std::string to = std::to_string(sizes[random() % std::size(sizes)]);
  const auto* to_begin = reinterpret_cast<const std::byte*>(to.data());
  for (size_t i = 0; i < texts; ++i) {
    Bytes& text = sections[i].bytes;
    const auto all = numbers_in(text);
    for (auto number = all.rbegin(); number != all.rend(); ++number) {
      const auto first = text.begin() + static_cast<ptrdiff_t>(number->first);
      const auto last = text.begin() + static_cast<ptrdiff_t>(number->second);
      if (!std::equal(first, last, from.begin(), from.end())) continue;
      text.insert(text.erase(first, last), to_begin, to_begin + to.size());
    }
  }
}

void mutate_sections(std::vector<OwnSection>& sections, std::mt19937& random, size_t most) {
  const auto any = [&] { return random() % sections.size(); };
  OwnSection& section = sections[any()];
  switch (random() % 16) {
    case 0:
      sections.erase(sections.begin() + static_cast<ptrdiff_t>(any()));
      break;
    case 1:
      std::swap(section.name, sections[any()].name);
      break;
    case 2:
      section.bytes = Bytes(sections[any()].bytes);
      break;
    case 3:
      section.bytes.resize(random() % (section.bytes.size() + 1));
      break;
    case 4:
    case 5:
    case 6:
      resize_everywhere(sections, random);
      break;
    default:
      // Texts come first, and there is most to read in them.
      mutate_bytes(random() % 4 == 0
                       ? section.bytes
                       : sections[random() % std::min<size_t>(sections.size(), 4)].bytes,
                   most);
  }
}

size_t stored(const std::vector<OwnSection>& sections, uint8_t* data, size_t most) {
  std::vector<Section> all;
  for (const OwnSection& section : sections) all.push_back({section.name, section.bytes});
  const Bytes bytes = container_bytes(all);
  if (bytes.size() > most) return 0;
  std::memcpy(data, bytes.data(), bytes.size());
  return bytes.size();
}

void read_all(const ExecutableFile& file) {
  refused_or([&] { file.container().check_all(); });
  for (const std::string& name : file.part_names()) refused_or([&] { file.part(name); });
  for (size_t i = 0; i < file.states().size(); ++i) refused_or([&] { file.state_value(i); });
  refused_or([&] { file.signature(); });
  refused_or([&] { file.graph(FromFile::any_host_call); });
  load_executable(file);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  refused_or([&] { read_all(ExecutableFile(Container("input", bytes_at(data, size), nullptr))); });
  return 0;
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t most,
                                          unsigned int seed) {
  std::mt19937 random(seed);
  if (random() % 8 == 0) return LLVMFuzzerMutate(data, size, most);
  std::vector<OwnSection> sections = sections_of(data, size);
  if (sections.empty()) return LLVMFuzzerMutate(data, size, most);
  mutate_sections(sections, random, most);
  const size_t made = sections.empty() ? 0 : stored(sections, data, most);
  return made > 0 ? made : LLVMFuzzerMutate(data, size, most);
}
