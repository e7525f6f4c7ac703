#include "tessera/launch/instance_environment.h"

#include <algorithm>
#include <array>

namespace tessera {
namespace {

constexpr std::array forwarded = {"PATH", "LD_LIBRARY_PATH", "PYTHONPATH"};
constexpr std::array forwarded_prefixes = {"TESSERA_", "POPTORCH_", "POPLAR_", "POPDIST_"};

bool is_forwarded(const std::string& name) {
  const auto begins = [&](const char* prefix) { return name.starts_with(prefix); };
  return std::find(forwarded.begin(), forwarded.end(), name) != forwarded.end() ||
         std::any_of(forwarded_prefixes.begin(), forwarded_prefixes.end(), begins);
}

}  // namespace

Variables popdist_variables(const Instance& instance, int64_t instances, int64_t ipus_per_replica) {
  return {{"POPDIST_NUM_TOTAL_REPLICAS", std::to_string(instances * instance.replicas)},
          {"POPDIST_NUM_IPUS_PER_REPLICA", std::to_string(ipus_per_replica)},
          {"POPDIST_NUM_LOCAL_REPLICAS", std::to_string(instance.replicas)},
          {"POPDIST_UNIFORM_REPLICAS_PER_INSTANCE", "1"},
          {"POPDIST_REPLICA_INDEX_OFFSET", std::to_string(instance.first_replica)},
          {"POPDIST_LOCAL_INSTANCE_INDEX", std::to_string(instance.index_on_host)}};
}

Variables common_variables(const LaunchOptions& options) {
  Variables variables;
  if (!options.cache_path.empty()) variables.emplace_back("POPTORCH_CACHE_DIR", options.cache_path);
  if (options.instance_timeout) {
    variables.emplace_back("TESSERA_INSTANCE_TIMEOUT", *options.instance_timeout);
  }
  if (options.offline) variables.emplace_back("TESSERA_OFFLINE", "1");
  return variables;
}

int64_t threads_of(const LaunchOptions& options, const Instance& instance, int64_t cpus) {
  if (options.threads_per_instance) return *options.threads_per_instance;
  return std::max<int64_t>(1, cpus / instance.instances_on_host);
}

std::vector<std::string> forwarded_names(const char* const* environment) {
  std::vector<std::string> names;
  for (; *environment != nullptr; ++environment) {
    const std::string entry = *environment;
    std::string name = entry.substr(0, entry.find('='));
    if (is_forwarded(name)) names.push_back(std::move(name));
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace tessera
