#include "tessera/api/acquire_device.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <ctime>
#include <map>
#include <string_view>
#include <thread>
#include <vector>

#include "tessera/api/environment.h"
#include "tessera/api/options/option_warnings.h"
#include "tessera/api/options/options.h"
#include "tessera/base/error.h"
#include "tessera/base/log.h"

namespace tessera {
namespace {

constexpr int64_t most_ipus_of_a_process = 64;
constexpr auto time_between_tries = std::chrono::milliseconds(100);

bool waits_for_devices() {
  const char* value = std::getenv("POPTORCH_WAIT_FOR_IPU");
  const std::string_view text = value ? value : "";
  return !text.empty() && text != "0";
}

std::vector<DeviceInfo> devices_to_try(const Options& options, int64_t needed) {
  const int64_t there = num_virtual_ipus();
  check(needed <= there,
        "Failed to acquire {} IPU(s): this machine has {}; set TESSERA_NUM_IPUS to {} or more, or "
        "use the IPU model",
        needed, there, needed);
  if (!options.ipu_id()) return devices_of_size(there, needed);
  const int64_t id = *options.ipu_id();
  const auto device = device_of_id(there, id);
  check(device.has_value(),
        "useIpuId({}): there is no device of this number; there are {} IPUs, and groups of them; "
        "`gc-info -l` lists the devices",
        id, there);
  check(device->ipus.count >= needed,
        "useIpuId({}): the device has {} IPUs, but the model needs {}", id, device->ipus.count,
        needed);
  if (device->ipus.count > needed) {
    warn_about_option("useIpuId({}): the device has {} IPUs, but the model needs only {}", id,
                      device->ipus.count, needed);
  }
  return {*device};
}

// Those who have an IPU of these devices.
std::vector<Attachment> in_the_way(const std::vector<DeviceInfo>& devices) {
  std::vector<Attachment> found = attachments(num_virtual_ipus());
  std::erase_if(found, [&](const Attachment& attachment) {
    return std::none_of(devices.begin(), devices.end(), [&](const DeviceInfo& device) {
      return device.ipus.overlaps({attachment.ipu, 1});
    });
  });
  return found;
}

std::string spoken_user(const Attachment& attachment) {
  const DeviceUser& user = attachment.user;
  if (attachment.is_ours) return fmt::format("this process's {}", user.purpose);
  std::string command = user.command.substr(0, 60);
  if (command.size() < user.command.size()) command += "...";
  return fmt::format("process {} of {} ('{}', for {})", user.pid, user.user, command,
                     spoken_duration(std::time(nullptr) - user.since));
}

// "IPU 0 by this process's training model 'MLP', IPUs 4, 5 by process 17 of eve ('python3 a.py')".
std::string spoken_users(const std::vector<Attachment>& attached) {
  std::vector<std::pair<std::string, std::vector<int64_t>>> users;
  for (const Attachment& attachment : attached) {
    const std::string user = spoken_user(attachment);
    if (users.empty() || users.back().first != user) users.push_back({user, {}});
    users.back().second.push_back(attachment.ipu);
  }
  constexpr size_t most = 20;
  std::vector<std::string> texts;
  for (const auto& [user, ipus] : users) {
    if (texts.size() == most) break;
    texts.push_back(
        fmt::format("IPU{} {} by {}", ipus.size() > 1 ? "s" : "", fmt::join(ipus, ", "), user));
  }
  if (users.size() > most) texts.push_back(fmt::format("and {} more", users.size() - most));
  return texts.empty() ? "somebody, who has given it back since"
                       : fmt::format("{}", fmt::join(texts, ", "));
}

std::string what_is_busy(const Options& options, int64_t needed) {
  if (options.ipu_id()) return fmt::format("device {} is in use", *options.ipu_id());
  if (needed > 1) return fmt::format("every group of {} IPUs is in use", needed);
  const int64_t there = num_virtual_ipus();
  return there == 1 ? "the only IPU is in use" : fmt::format("all {} IPUs are in use", there);
}

std::string what_to_do(const std::vector<Attachment>& attached) {
  const bool ours = std::any_of(attached.begin(), attached.end(),
                                [](const Attachment& attachment) { return attachment.is_ours; });
  if (ours) {
    return "call detachFromDevice() or destroy() on a model that does not run now, or set "
           "TESSERA_NUM_IPUS to more";
  }
  return "set POPTORCH_WAIT_FOR_IPU=1 to wait for it, or TESSERA_NUM_IPUS to more; gc-monitor "
         "shows "
         "who has which";
}

void sleep_and_poll(const DeviceRequest& request) {
  log(LogLevel::trace, "No IPU available, sleeping for {} seconds",
      std::chrono::duration<double>(time_between_tries).count());
  if (request.poll) request.poll();
  std::this_thread::sleep_for(time_between_tries);
  if (request.poll) request.poll();
}

}  // namespace

int64_t ipus_to_reserve(const Options& options, int64_t ipus_per_replica) {
  const int64_t replicas = options.replication_factor();
  int64_t count = 0;
  const bool overflows = __builtin_mul_overflow(ipus_per_replica, replicas, &count);
  check(!overflows && count <= most_ipus_of_a_process,
        "the model needs {} IPU(s) for each of {} replica(s), but a process can have {} at most; "
        "use fewer replicas or put blocks on the same IPU",
        ipus_per_replica, replicas, most_ipus_of_a_process);
  if (options.connection_type() == ConnectionType::never || ipu_model(options)) return 0;
  const int64_t rounded = rounded_to_power_of_two(count);
  if (rounded == count) return count;
  check(options.auto_round_num_ipus(),
        "the model uses {} IPUs ({} for each of {} replica(s)), but IPUs come in groups of 1, 2, 4 "
        "and so on, so that {} must be reserved; use another number of IPUs, or set "
        "poptorch.Options().autoRoundNumIPUs(True)",
        count, ipus_per_replica, replicas, rounded);
  warn_about_option("autoRoundNumIPUs: {} IPUs are reserved for the {} that the model uses",
                    rounded, count);
  return rounded;
}

Device acquire_device(const Options& options, const DeviceRequest& request) {
  const int64_t needed = ipus_to_reserve(options, request.ipus_per_replica);
  if (needed == 0) return {};
  const std::vector<DeviceInfo> devices = devices_to_try(options, needed);
  if (auto device = try_acquire(devices, request.purpose)) return *std::move(device);
  if (request.reclaim) request.reclaim();
  for (bool told = false;; sleep_and_poll(request)) {
    if (auto device = try_acquire(devices, request.purpose)) return *std::move(device);
    const std::vector<Attachment> attached = in_the_way(devices);
    check(waits_for_devices(), "Failed to acquire {} IPU(s): {}: {}; {}", needed,
          what_is_busy(options, needed), spoken_users(attached), what_to_do(attached));
    if (!told) {
      log(LogLevel::warn, "waiting for {} IPU(s): {}: {}", needed, what_is_busy(options, needed),
          spoken_users(attached));
    }
    told = true;
  }
}

}  // namespace tessera
