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
