#include "tessera/launch/mpirun_command.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <set>

#include "tessera/launch/hosts.h"
#include "tessera/launch/supervisor_job.h"

namespace tessera {
namespace {

using Words = std::vector<std::string>;

void append(Words& words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
}

bool has_any(const Words& words, std::initializer_list<std::string_view> names) {
  return std::any_of(words.begin(), words.end(), [&](const std::string& word) {
    return std::find(names.begin(), names.end(), word) != names.end();
  });
}

bool mentions(const Words& words, std::string_view part) {
  return std::any_of(words.begin(), words.end(),
                     [&](const std::string& word) { return word.find(part) != std::string::npos; });
}

bool asks_for_mapping(const Words& words) {
  return has_any(words, {"--map-by", "-map-by", "--rankfile", "-rf"});
}

// Hosts that do not answer are known soon, and no password is asked for. Open MPI 5 hands values
// with an equals sign on to the daemons of other hosts cut off, so none may start further ones.
Words ssh_options(const Launch& launch) {
  const Words& global = launch.options.mpi_global;
  if (!leaves_this_host(launch) || mentions(global, "plm_rsh_args") ||
      mentions(global, "plm_ssh_args")) {
    return {};
  }
  const char* options = "-o ConnectTimeout=10 -o BatchMode=yes";
  if (launch.open_mpi < 5) return {"--mca", "plm_rsh_args", options};
  return {"--prtemca", "plm_ssh_args", options, "--prtemca", "plm_ssh_no_tree_spawn", "1"};
}

// Arguments that stand there already are not repeated.
Words global_arguments(const Launch& launch) {
  Words words;
  for (const std::string& word : launch.options.mpi_global) {
    const bool is_ours = word == "--tag-output" || word == "-tag-output" ||
                         word == "--allow-run-as-root" || word == "-allow-run-as-root";
    if (!is_ours) words.push_back(word);
  }
  return words;
}

// More instances than cores are welcome.
Words mapping(const Launch& launch) {
  if (asks_for_mapping(launch.options.mpi_global)) return {};
  if (launch.open_mpi < 5) return {"--oversubscribe"};
  return {"--map-by", "slot:OVERSUBSCRIBE"};
}

// Where instances share a core, none may spin while it waits for a message.
Words waiting(const Launch& launch) {
  const bool is_crowded =
      std::any_of(launch.instances.begin(), launch.instances.end(),
                  [&](const Instance& one) { return one.instances_on_host > launch.cpus; });
  if (!is_crowded || mentions(launch.options.mpi_global, "mpi_yield_when_idle")) return {};
  return {"--mca", "mpi_yield_when_idle", "1"};
}

Words head(const Launch& launch) {
  Words words = {"mpirun", "--tag-output"};
  if (!has_any(launch.options.mpi_global, {"--bind-to", "-bind-to"})) {
    append(words, {"--bind-to", "none"});
  }
  append(words, mapping(launch));
  append(words, waiting(launch));
  if (launch.is_root) words.push_back("--allow-run-as-root");
  append(words, ssh_options(launch));
  append(words, global_arguments(launch));
  return words;
}

// The user's own `-x NAME` and `-x NAME=value`.
std::set<std::string> exported_names(const Words& words) {
  std::set<std::string> names;
  for (size_t i = 0; i + 1 < words.size(); ++i) {
    if (words[i] == "-x") names.insert(words[i + 1].substr(0, words[i + 1].find('=')));
  }
  return names;
}

Words exports(const Launch& launch, const Variables& variables) {
  std::set<std::string> said = exported_names(launch.options.mpi_local);
  Words words;
  for (const auto& [name, value] : variables) {
    // Nobody but us knows which instance this is.
    if (said.count(name) > 0 && !name.starts_with("POPDIST_")) continue;
    append(words, {"-x", fmt::format("{}={}", name, value)});
    said.insert(name);
  }
  for (const std::string& name : launch.forwarded) {
    if (said.count(name) == 0) append(words, {"-x", name});
  }
  return words;
}

SupervisorJob job_of(const Launch& launch, int64_t index, Reader reader) {
  Words hosts;
  for (const Instance& instance : launch.instances) {
    if (hosts.empty() || hosts.back() != instance.host) hosts.push_back(instance.host);
  }
  const auto instances = static_cast<int64_t>(launch.instances.size());
  return {.index = index,
          .hosts = std::move(hosts),
          .instances = instances,
          .replicas = instances * launch.instances.front().replicas,
          .ipus_per_replica = launch.options.ipus_per_replica,
          .output_from = launch.options.only_output_from.value_or(SupervisorJob::none),
          .binds = binds_to_cores(launch.options),
          .has_poprun = reader == Reader::poprun,
          .program = launch.program};
}

Words supervised_program(const Launch& launch, int64_t index, Reader reader) {
  Words words = {launch.supervisor};
  append(words, words_of(job_of(launch, index, reader)));
  return words;
}

// -np 1 ... : -np 1 ...
Words one_by_one(const Launch& launch, Reader reader) {
  Words words;
  for (const Instance& instance : launch.instances) {
    append(words, {"-np", "1"});
    if (leaves_this_host(launch)) append(words, {"--host", instance.host});
    append(words, launch.options.mpi_local);
    append(words, exports(launch, variables_of(launch, instance)));
    append(words, supervised_program(launch, instance.index, reader));
    if (&instance != &launch.instances.back()) words.push_back(":");
  }
  return words;
}

// -np N ...; what differs between instances their supervisors say.
Words all_at_once(const Launch& launch, Reader reader) {
  Words words;
  if (leaves_this_host(launch)) {
    Words hosts;
    for (const Instance& instance : launch.instances) {
      if (instance.index_on_host > 0) continue;
      hosts.push_back(fmt::format("{}:{}", instance.host, instance.instances_on_host));
    }
    append(words, {"--host", fmt::format("{}", fmt::join(hosts, ","))});
  }
  append(words, {"-np", std::to_string(launch.instances.size())});
  append(words, launch.options.mpi_local);
  Variables variables = variables_of(launch, launch.instances.front());
  std::erase_if(variables, [](const auto& variable) {
    return variable.first == "POPDIST_REPLICA_INDEX_OFFSET" ||
           variable.first == "POPDIST_LOCAL_INSTANCE_INDEX";
  });
  append(words, exports(launch, variables));
  append(words, supervised_program(launch, SupervisorJob::none, reader));
  return words;
}

}  // namespace

int open_mpi_release(std::string_view version_text) {
  constexpr std::string_view name = "(Open MPI) ";
  const size_t at = version_text.find(name);
  if (at == std::string_view::npos) return 0;
  const std::string_view number = version_text.substr(at + name.size());
  int release = 0;
  std::from_chars(number.data(), number.data() + number.size(), release);
  return release;
}

bool leaves_this_host(const Launch& launch) {
  return std::any_of(launch.instances.begin(), launch.instances.end(),
                     [](const Instance& instance) { return !is_this_host(instance.host); });
}

bool binds_to_cores(const LaunchOptions& options) {
  return !asks_for_mapping(options.mpi_global) &&
         !has_any(options.mpi_global,
                  {"--bind-to", "-bind-to", "--cpu-set", "-cpu-set", "--cpu-list", "-cpu-list"});
}

Variables variables_of(const Launch& launch, const Instance& instance) {
  Variables variables = popdist_variables(instance, static_cast<int64_t>(launch.instances.size()),
                                          launch.options.ipus_per_replica);
  if (launch.options.threads_per_instance || !launch.threads_in_environment) {
    variables.emplace_back("TESSERA_NUM_THREADS",
                           std::to_string(threads_of(launch.options, instance, launch.cpus)));
  }
  const Variables common = common_variables(launch.options);
  variables.insert(variables.end(), common.begin(), common.end());
  return variables;
}

// Debian's Open MPI 5 crashes where several commands are joined by colons.
std::vector<std::string> mpirun_command(const Launch& launch, Reader reader) {
  Words words = head(launch);
  append(words, launch.open_mpi < 5 ? one_by_one(launch, reader) : all_at_once(launch, reader));
  return words;
}

}  // namespace tessera
