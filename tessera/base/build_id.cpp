#include "tessera/base/build_id.h"

#include <dlfcn.h>
#include <elf.h>
#include <fmt/format.h>
#include <link.h>
#include <sys/stat.h>

#include <cstring>
#include <string_view>

namespace tessera {
namespace {

struct Search {
  ElfW(Addr) address;  // of something in the file that is looked for
  std::string found;
};

size_t padded(size_t size) { return (size + 3) / 4 * 4; }

// Notes stand one behind the other: sizes of name and content, type, name, content.
std::string id_in_notes(const std::byte* at, size_t size) {
  while (size >= sizeof(ElfW(Nhdr))) {
    ElfW(Nhdr) note;
    std::memcpy(&note, at, sizeof(note));
    const size_t name = sizeof(note), content = name + padded(note.n_namesz);
    const size_t end = content + padded(note.n_descsz);
    if (end > size) break;
    const std::string_view owner(reinterpret_cast<const char*>(at + name), note.n_namesz);
    if (note.n_type == NT_GNU_BUILD_ID && owner == std::string_view("GNU", 4)) {
      std::string text;
      for (size_t i = 0; i < note.n_descsz; ++i) {
        text += fmt::format("{:02x}", std::to_integer<int>(at[content + i]));
      }
      return text;
    }
    at += end;
    size -= end;
  }
  return {};
}

int look_at(dl_phdr_info* file, size_t, void* data) {
  auto& search = *static_cast<Search*>(data);
  bool ours = false;
  for (int i = 0; i < file->dlpi_phnum; ++i) {
    const auto& part = file->dlpi_phdr[i];
    const auto begin = file->dlpi_addr + part.p_vaddr;
    ours = ours || (part.p_type == PT_LOAD && search.address >= begin &&
                    search.address < begin + part.p_memsz);
  }
  for (int i = 0; ours && i < file->dlpi_phnum && search.found.empty(); ++i) {
    const auto& part = file->dlpi_phdr[i];
    if (part.p_type != PT_NOTE) continue;
    const auto* notes = reinterpret_cast<const std::byte*>(file->dlpi_addr + part.p_vaddr);
    search.found = id_in_notes(notes, part.p_memsz);
  }
  return ours ? 1 : 0;
}

std::string size_and_time() {
  Dl_info file{};
  struct stat status {};
  if (dladdr(reinterpret_cast<const void*>(&build_id), &file) == 0 || !file.dli_fname ||
      stat(file.dli_fname, &status) != 0) {
    return "unknown";
  }
  return fmt::format("{} {}.{}", status.st_size, status.st_mtim.tv_sec, status.st_mtim.tv_nsec);
}

}  // namespace

std::string build_id() {
  Search search{reinterpret_cast<ElfW(Addr)>(&build_id), {}};
  dl_iterate_phdr(&look_at, &search);
  return search.found.empty() ? size_and_time() : search.found;
}

}  // namespace tessera
