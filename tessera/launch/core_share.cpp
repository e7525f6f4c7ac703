#include "tessera/launch/core_share.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <tuple>

namespace tessera {
namespace {

int number_in(const std::filesystem::path& file) {
  int number = 0;
  std::ifstream(file) >> number;
  return number;
}

// Which memory is near to a core: its folder holds a link nodeN.
int memory_node(const std::filesystem::path& folder) {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename();
    if (name.starts_with("node") && name.size() > 4 && name[4] >= '0' && name[4] <= '9') {
      return std::stoi(name.substr(4));
    }
  }
  return 0;
}

auto place_of(int cpu) {
  const std::filesystem::path folder = fmt::format("/sys/devices/system/cpu/cpu{}", cpu);
  return std::tuple(memory_node(folder), number_in(folder / "topology/physical_package_id"),
                    number_in(folder / "topology/core_id"), cpu);
}

}  // namespace

std::vector<int> usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) != 0) return {};
  std::vector<decltype(place_of(0))> places;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &set)) places.push_back(place_of(cpu));
  }
  std::sort(places.begin(), places.end());
  std::vector<int> cores;
  cores.reserve(places.size());
  for (const auto& place : places) cores.push_back(std::get<3>(place));
  return cores;
}

std::vector<int> share_of_cores(std::span<const int> cores, int64_t index, int64_t count) {
  const auto size = static_cast<int64_t>(cores.size());
  if (size == 0) return {};
  if (count > size) return {cores[static_cast<size_t>(index % size)]};
  const auto begin = cores.begin() + index * size / count;
  const auto end = cores.begin() + (index + 1) * size / count;
  return {begin, end};
}

void bind_to_cores(std::span<const int> cores) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int core : cores) CPU_SET(core, &set);
  if (!cores.empty()) sched_setaffinity(0, sizeof set, &set);
}

std::string core_list(std::vector<int> cores) {
  std::sort(cores.begin(), cores.end());
  std::string text;
  for (size_t i = 0; i < cores.size();) {
    size_t last = i;
    while (last + 1 < cores.size() && cores[last + 1] == cores[last] + 1) ++last;
    text += fmt::format("{}{}", text.empty() ? "" : ",", cores[i]);
    if (last > i) text += fmt::format("-{}", cores[last]);
    i = last + 1;
  }
  return text;
}

}  // namespace tessera
