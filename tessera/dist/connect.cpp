#include "tessera/dist/connect.h"

#include <dlfcn.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <vector>

#include "tessera/base/error.h"

namespace tessera::dist {
namespace {

constexpr std::string_view library_name = "libtessera_mpi.so";

struct Process {
  std::mutex mutex;
  std::shared_ptr<Link> link;
};

// Never destroyed: it is asked when the process exits.
Process& process() {
  static auto* const the_one = new Process;
  return *the_one;
}

void leave_at_exit(int status, void*) {
  const std::shared_ptr<Link> link = connected();
  if (!link) return;
  if (status == 0) {
    link->close();
  } else {
    link->close_failed(fmt::format("its program ended with exit code {}", status));
  }
}

// Beside whatever we are a part of (a program, Python's module), as it was built or installed.
std::vector<std::filesystem::path> places_of_library() {
  std::vector<std::filesystem::path> places;
  Dl_info info{};
  if (dladdr(reinterpret_cast<const void*>(&library_name), &info) && info.dli_fname) {
    std::error_code ignored;
    const auto self = std::filesystem::canonical(info.dli_fname, ignored);
    for (const char* folder : {".", "../lib", "../lib/tessera", "../../lib"}) {
      places.push_back(self.parent_path() / folder / library_name);
    }
  }
  places.emplace_back(TESSERA_INSTALLED_LIBRARIES);
  places.back() /= library_name;
  return places;
}

std::string path_of_library(const std::string& wanted) {
  if (!wanted.empty()) return wanted;
  std::error_code ignored;
  for (const auto& place : places_of_library()) {
    if (std::filesystem::exists(place, ignored)) return place.string();
  }
  return std::string(library_name);  // the loader has places of its own
}

// To the whole process: what MPI itself loads later looks for MPI's names.
void* open_library(const std::string& path) {
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (library) return library;
  const std::string why = dlerror();
  check(why.find("libmpi") == std::string::npos, ErrorKind::runtime,
        "several instances need Open MPI, which is not installed: install the Debian package "
        "openmpi-bin ({})",
        why);
  fail(ErrorKind::runtime,
       "several instances need the library {}, which was not built or not installed with this "
       "Tessera: install the Debian packages libopenmpi-dev and openmpi-bin, and build it again "
       "({})",
       library_name, why);
}

std::unique_ptr<Transport> open_mpi(const std::string& path) {
  const auto open = reinterpret_cast<OpenMpi>(dlsym(open_library(path), mpi_entry));
  check(open != nullptr, ErrorKind::runtime, "'{}' is no library of Tessera's that speaks MPI",
        path);
  std::string why;
  std::unique_ptr<Transport> transport(open(transport_version, &why));
  check(transport != nullptr, ErrorKind::runtime,
        "the instances could not be connected by '{}': {}", path, why);
  return transport;
}

}  // namespace

std::shared_ptr<Link> connect(const Connecting& connecting) {
  Process& here = process();
  const std::lock_guard lock(here.mutex);
  if (here.link) return here.link;
  const std::string path = path_of_library(connecting.library);
  here.link = std::make_shared<Link>([path] { return open_mpi(path); }, connecting.settings);
  on_exit(leave_at_exit, nullptr);
  return here.link;
}

std::shared_ptr<Link> connected() {
  Process& here = process();
  const std::lock_guard lock(here.mutex);
  return here.link;
}

}  // namespace tessera::dist
