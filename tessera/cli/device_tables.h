// What gc-monitor, gc-info and gc-inventory print about the virtual IPUs: tables in the form that
// Graphcore's programs of these names have, and JSON. What a virtual IPU has not, such as a
// temperature, is N/A, or null in JSON.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "tessera/device/registry.h"

namespace tessera {

// The IPUs of the machine, a line each.
std::string card_table(int64_t num_ipus);
// Who has one, a line for each IPU; `now` is in seconds since 1970.
std::string process_table(std::span<const Attachment> attached, int64_t now);
std::string monitor_json(int64_t num_ipus, std::span<const Attachment> attached, int64_t now,
                         bool with_cards);

// All devices with their ids, groups among them.
std::string device_list(int64_t num_ipus);
std::string device_list_json(int64_t num_ipus);

// All that is known about one device.
std::string device_description(int64_t num_ipus, const DeviceInfo& device,
                               std::span<const Attachment> attached);
std::string device_description_json(int64_t num_ipus, const DeviceInfo& device,
                                    std::span<const Attachment> attached);

}  // namespace tessera
