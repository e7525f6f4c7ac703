#include "tessera/cli/device_tables.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "tessera/base/json_text.h"

namespace tessera {
namespace {

constexpr std::string_view partition = "tessera";
constexpr std::string_view machine_type = "M2000";
constexpr std::string_view unknown = "N/A";

using Cells = std::vector<std::string>;

// How many columns a text takes on a terminal, as far as bytes tell.
size_t width_of(std::string_view text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](unsigned char c) {
    return (c & 0xc0) != 0x80;  // not the second byte of a character
  }));
}

std::string centred(std::string_view text, size_t width) {
  const size_t spare = width - std::min(width, width_of(text));
  return std::string(spare / 2, ' ') + std::string(text) + std::string(spare - spare / 2, ' ');
}

std::string border(const std::vector<size_t>& widths) {
  std::string line = "+";
  for (const size_t width : widths) line += std::string(width, '-') + '+';
  return line + '\n';
}

std::string row(const Cells& cells, const std::vector<size_t>& widths) {
  std::string line = "|";
  for (size_t i = 0; i < cells.size(); ++i) line += centred(cells[i], widths[i]) + '|';
  return line + '\n';
}

// At least these widths, and a space around every cell.
std::vector<size_t> fitted(std::vector<size_t> widths, const std::vector<Cells>& rows) {
  for (const Cells& cells : rows) {
    for (size_t i = 0; i < cells.size(); ++i) {
      widths[i] = std::max(widths[i], width_of(cells[i]) + 2);
    }
  }
  return widths;
}

// Columns that stand under one heading, with the borders between them.
size_t together(const std::vector<size_t>& widths, size_t first, size_t count) {
  size_t sum = count - 1;
  for (size_t i = first; i < first + count; ++i) sum += widths[i];
  return sum;
}

std::string shortened(const std::string& text, size_t columns) {
  if (width_of(text) <= columns) return text;
  std::string cut = text.substr(0, columns - 3);
  while (!cut.empty() && (static_cast<unsigned char>(cut.back()) & 0x80)) cut.pop_back();
  return cut + "...";
}

std::string or_unknown(const std::string& text) {
  return text.empty() ? std::string(unknown) : text;
}

using Fields = std::vector<std::pair<std::string, std::string>>;  // names and JSON values

std::string json_object(const Fields& fields) {
  std::vector<std::string> texts;
  for (const auto& [name, value] : fields) {
    texts.push_back(fmt::format("{}: {}", json_string(name), value));
  }
  return fmt::format("{{{}}}", fmt::join(texts, ", "));
}

std::string json_list(const std::vector<std::string>& items) {
  if (items.empty()) return "[]";
  return fmt::format("[\n    {}\n  ]", fmt::join(items, ",\n    "));
}

std::string json_number(int64_t number) { return std::to_string(number); }

std::vector<int64_t> numbers_of(const IpuGroup& ipus) {
  std::vector<int64_t> numbers;
  for (int64_t i = 0; i < ipus.count; ++i) numbers.push_back(ipus.first + i);
  return numbers;
}

std::string card_json(int64_t num_ipus, int64_t ipu) {
  const IpuPlace place = place_of(num_ipus, ipu);
  return json_object({{"id", json_number(ipu)},
                      {"ipu_m", json_string(place.machine)},
                      {"serial", json_string(place.serial)},
                      {"server_version", json_string(TESSERA_VERSION)},
                      {"type", json_string(machine_type)},
                      {"ipu_number", json_number(place.number)},
                      {"routing", json_string("DNC")}});
}

std::string process_json(const Attachment& attachment, int64_t now) {
  const DeviceUser& user = attachment.user;
  return json_object({{"pid", json_number(user.pid)},
                      {"command", json_string(user.command)},
                      {"purpose", json_string(user.purpose)},
                      {"seconds", json_number(std::max<int64_t>(now - user.since, 0))},
                      {"user", json_string(user.user)},
                      {"ipu", json_number(attachment.ipu)},
                      {"device_id", json_number(user.device)},
                      {"num_ipus", json_number(user.ipus.count)},
                      {"clock_mhz", json_number(IpuFacts().clock_mhz)},
                      {"ipu_temperature", "null"},
                      {"board_temperature", "null"},
                      {"board_power", "null"}});
}

// Names and values of a device, in the order in which they are printed.
std::vector<std::pair<std::string, std::string>> attributes(int64_t num_ipus,
                                                            const DeviceInfo& device,
                                                            std::span<const Attachment> attached) {
  const IpuFacts facts;
  const IpuPlace place = place_of(num_ipus, device.ipus.first);
  const bool single = device.ipus.count == 1;
  const std::string none(unknown);
  const Attachment* used = nullptr;
  for (const Attachment& attachment : attached) {
    if (!used && device.ipus.overlaps({attachment.ipu, 1})) used = &attachment;
  }
  std::vector<std::pair<std::string, std::string>> list = {
      {"id", std::to_string(device.id)},
      {"target", single ? "Fabric" : "Multi IPU"},
      {"num ipus", std::to_string(device.ipus.count)},
      {"ipus", fmt::format("{}", fmt::join(numbers_of(device.ipus), ", "))},
      {"partition", std::string(partition)},
      {"average board temp", none},
      {"average die temp", none},
      {"board type", std::string(machine_type)},
      {"board variant", "virtual"},
      {"clock", fmt::format("{}MHz", facts.clock_mhz)},
      {"driver version", TESSERA_VERSION},
      {"firmware version", none},
      {"ipu architecture", fmt::format("ipu{}", facts.version)},
      {"ipu error state", "no errors"},
      {"ipu power", none},
      {"ipu utilisation", none},
      {"link speed", none},
      {"memory per tile", fmt::format("{} bytes", facts.bytes_per_tile)},
      {"numa node", none},
      {"pci id", none},
      {"tiles per ipu", std::to_string(facts.tiles)},
      {"total board power", none},
      {"worker threads per tile", std::to_string(facts.threads_per_tile)},
      {"user executable", used ? or_unknown(used->user.command) : none},
      {"user name", used ? or_unknown(used->user.user) : none},
      {"user process id", used ? std::to_string(used->user.pid) : none},
  };
  if (single) {
    list.insert(list.begin() + 5, {{"ipu-m", place.machine},
                                   {"board serial number", place.serial},
                                   {"board ipu index", std::to_string(place.number)}});
  }
  return list;
}

}  // namespace

std::string card_table(int64_t num_ipus) {
  const std::string title = fmt::format("Partition: {} [active] has {} reconfigurable IPU{}",
                                        partition, num_ipus, num_ipus == 1 ? "" : "s");
  const Cells names = {"IPU-M", "Serial", "IPU-M SW", "Server version", "ICU FW",
                       "Type",  "ID",     "IPU#",     "Routing"};
  std::vector<Cells> rows;
  for (int64_t ipu = 0; ipu < num_ipus; ++ipu) {
    const IpuPlace place = place_of(num_ipus, ipu);
    rows.push_back({place.machine, place.serial, "", TESSERA_VERSION, std::string(unknown),
                    std::string(machine_type), std::to_string(ipu), std::to_string(place.number),
                    "DNC"});
  }
  const auto widths = fitted({13, 20, 8, 14, 10, 7, 4, 6, 7}, rows);
  const std::vector<size_t> heading = {15, together(widths, 0, widths.size()) - 16};
  std::string text = border(heading) + row({"gc-monitor", title}, heading);
  text += border(widths) + row(names, widths) + border(widths);
  for (const Cells& cells : rows) text += row(cells, widths);
  return text + (rows.empty() ? "" : border(widths));
}

std::string process_table(std::span<const Attachment> attached, int64_t now) {
  if (attached.empty()) {
    const std::vector<size_t> widths = {97};
    return border(widths) +
           row({fmt::format("No attached processes in partition {}", partition)}, widths) +
           border(widths);
  }
  std::vector<Cells> rows;
  for (const auto& [ipu, ours, user] : attached) {
    rows.push_back({std::to_string(user.pid), shortened(or_unknown(user.command), 80),
                    spoken_duration(now - user.since), or_unknown(user.user), std::to_string(ipu),
                    fmt::format("{}MHz", IpuFacts().clock_mhz), std::string(unknown),
                    std::string(unknown), std::string(unknown)});
  }
  const auto widths = fitted({8, 82, 8, 12, 4, 10, 8, 8, 8}, rows);
  const std::vector<size_t> heading = {together(widths, 0, 4), together(widths, 4, 3),
                                       together(widths, 7, 2)};
  std::string text =
      border(heading) +
      row({fmt::format("Attached processes in partition {}", partition), "IPU", "Board"}, heading);
  text += border(widths);
  text += row({"PID", "Command", "Time", "User", "ID", "Clock", "Temp", "Temp", "Power"}, widths);
  text += border(widths);
  for (const Cells& cells : rows) text += row(cells, widths);
  return text + border(widths);
}

std::string monitor_json(int64_t num_ipus, std::span<const Attachment> attached, int64_t now,
                         bool with_cards) {
  std::vector<std::string> cards, processes;
  for (int64_t ipu = 0; ipu < num_ipus; ++ipu) cards.push_back(card_json(num_ipus, ipu));
  for (const Attachment& attachment : attached) processes.push_back(process_json(attachment, now));
  return fmt::format(
      "{{\n  \"partition\": {{\"name\": {}, \"state\": \"active\", \"ipus\": {}}},\n{}"
      "  \"attached_processes\": {}\n}}\n",
      json_string(partition), num_ipus,
      with_cards ? fmt::format("  \"cards\": {},\n", json_list(cards)) : "", json_list(processes));
}

std::string device_list(int64_t num_ipus) {
  std::string text =
      fmt::format("Graphcore device listing:\n\nPartition: {} [active]\n", partition);
  const auto where = [&](int64_t ipu) {
    const IpuPlace place = place_of(num_ipus, ipu);
    return fmt::format("IPU-M host: [{}], IPU#: [{}]", place.machine, place.number);
  };
  for (const DeviceInfo& device : all_devices(num_ipus)) {
    if (device.ipus.count == 1) {
      text +=
          fmt::format("-+- Id: [{}], target: [Fabric], {}\n", device.id, where(device.ipus.first));
      continue;
    }
    text += fmt::format("-+- Id: [{}], target: [Multi IPU]\n", device.id);
    for (int64_t i = 0; i < device.ipus.count; ++i) {
      text += fmt::format(" |--- Id: [{}], DNC Id: [{}], {}\n", device.ipus.first + i, i,
                          where(device.ipus.first + i));
    }
  }
  return text;
}

std::string device_list_json(int64_t num_ipus) {
  std::vector<std::string> items;
  for (const DeviceInfo& device : all_devices(num_ipus)) {
    items.push_back(
        json_object({{"id", json_number(device.id)},
                     {"target", json_string(device.ipus.count == 1 ? "Fabric" : "Multi IPU")},
                     {"ipus", fmt::format("[{}]", fmt::join(numbers_of(device.ipus), ", "))}}));
  }
  return fmt::format("{{\n  \"partition\": {},\n  \"devices\": {}\n}}\n", json_string(partition),
                     json_list(items));
}

std::string device_description(int64_t num_ipus, const DeviceInfo& device,
                               std::span<const Attachment> attached) {
  std::string text = fmt::format("Device Id: [{}]\n", device.id);
  for (const auto& [name, value] : attributes(num_ipus, device, attached)) {
    text += fmt::format("  {}: {}\n", name, value);
  }
  return text;
}

std::string device_description_json(int64_t num_ipus, const DeviceInfo& device,
                                    std::span<const Attachment> attached) {
  Fields fields;
  for (const auto& [name, value] : attributes(num_ipus, device, attached)) {
    fields.emplace_back(name, value == unknown ? "null" : json_string(value));
  }
  return json_object(fields);
}

}  // namespace tessera
