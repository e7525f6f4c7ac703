#include "tessera/launch/poprun.h"

#include <fmt/ranges.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iostream>

#include "tessera/base/error.h"
#include "tessera/base/thread_pool.h"
#include "tessera/launch/core_share.h"
#include "tessera/launch/hosts.h"
#include "tessera/launch/mpirun_command.h"
#include "tessera/launch/option_table.h"
#include "tessera/launch/options_file.h"
#include "tessera/launch/program_file.h"
#include "tessera/launch/run_mpirun.h"
#include "tessera/launch/shell_words.h"
#include "tessera/launch/supervisor.h"
#include "tessera/launch/topology_table.h"

namespace tessera {
namespace {

constexpr int failed = 1, wrong_usage = 2;
constexpr const char* threads_variable = "TESSERA_NUM_THREADS";

std::string variable(const char* name) {
  const char* text = std::getenv(name);
  return text == nullptr ? "" : text;
}

// 0 where there is no mpirun.
int find_open_mpi() {
  if (find_on_path("mpirun", variable("PATH")).empty()) return 0;
  const int release = open_mpi_release(output_of({"mpirun", "--version"}));
  check(release > 0,
        "the mpirun on PATH is not Open MPI's; install the package openmpi-bin, or put its folder "
        "first on PATH");
  return release;
}

Launch prepare(const OptionWords& words) {
  Launch launch;
  launch.options = options_of(words.given);
  launch.program = words.program;
  const LaunchOptions& options = launch.options;
  const std::vector<std::string> here = {this_host()};
  launch.instances = place_instances(options.hosts.empty() ? here : options.hosts,
                                     options.instances, options.replicas);
  launch.cpus = usable_cpus();
  launch.supervisor = std::filesystem::read_symlink("/proc/self/exe");
  launch.forwarded = forwarded_names(environ);
  launch.threads_in_environment = !variable(threads_variable).empty();
  launch.is_root = geteuid() == 0;
  return launch;
}

// On the command line, and in the file that it names.
OptionWords all_options(OptionWords words) {
  if (words.has("import-config")) {
    words.given = with_defaults(words.given, import_options(words.last("import-config")));
  }
  return words;
}

void export_if_asked(const OptionWords& words) {
  const std::string path = words.last("export-config");
  if (!path.empty()) export_options(path, words.given, is_yes(words.last("overwrite-config")));
}

void describe(const Launch& launch, std::ostream& err) {
  const LaunchOptions& options = launch.options;
  if (options.verbosity > 0 && !options.without_effect.empty()) {
    err << fmt::format(
        "poprun: no effect here: {} (there is no V-IPU server: virtual IPUs need no partition, and "
        "instances have neighbouring cores in any case)\n",
        fmt::join(options.without_effect, ", "));
  }
  if (options.print_topology) {
    err << topology_table(launch, usable_cores(), variable(threads_variable));
  }
}

void show_dry_run(const Launch& launch, std::ostream& out) {
  for (const Instance& instance : launch.instances) {
    out << fmt::format("# instance {} on host {}\n", instance.index, instance.host);
    for (const auto& [name, value] : variables_of(launch, instance)) {
      out << fmt::format("#   {}={}\n", name, shell_quoted(value));
    }
  }
  out << shell_quoted(mpirun_command(launch, Reader::anybody)) << '\n';
}

// The only instance, without mpirun.
int run_alone(const Launch& launch) {
  for (const auto& [name, value] : variables_of(launch, launch.instances.front())) {
    setenv(name.c_str(), value.c_str(), 1);
  }
  return supervise({.index = 0,
                    .hosts = {launch.instances.front().host},
                    .instances = 1,
                    .replicas = launch.options.replicas,
                    .ipus_per_replica = launch.options.ipus_per_replica,
                    .program = launch.program});
}

// The other hosts that mpirun or ssh speak of; all where they speak of none.
std::vector<std::string> lost_hosts(const Launch& launch, const std::string& messages) {
  std::vector<std::string> all, named;
  for (const Instance& instance : launch.instances) {
    if (instance.index_on_host > 0 || is_this_host(instance.host)) continue;
    all.push_back(instance.host);
    const std::string name = instance.host.substr(instance.host.find('@') + 1);
    if (messages.find(name) != std::string::npos) named.push_back(instance.host);
  }
  return named.empty() ? all : named;
}

// Where no instance failed and mpirun did.
void explain(const Launch& launch, const MpirunResult& result, std::ostream& err) {
  if (WIFSIGNALED(result.status)) {
    err << fmt::format("poprun: mpirun was killed by signal {} ({})\n", WTERMSIG(result.status),
                       strsignal(WTERMSIG(result.status)));
  } else if (leaves_this_host(launch)) {
    err << fmt::format(
        "poprun: no connection to {}; `ssh HOST` must work without a password, and poprun and Open "
        "MPI must be where they are here: {}\n",
        fmt::join(lost_hosts(launch, result.own_messages), ", "), launch.supervisor);
  } else {
    err << fmt::format("poprun: mpirun failed with exit code {}; `poprun -vv` shows all it says\n",
                       exit_code_of(result.status));
  }
}

int run_with_mpirun(const Launch& launch, std::ostream& err) {
  if (launch.options.verbosity > 0) {
    err << shell_quoted(mpirun_command(launch, Reader::anybody)) << std::endl;
  }
  const MpirunResult result =
      run_mpirun(mpirun_command(launch, Reader::poprun), launch.options.verbosity > 1);
  if (result.told_to_end != 0) return 128 + result.told_to_end;
  if (result.failure) return result.failure->exit_code;
  const int code = exit_code_of(result.status);
  if (code != 0) explain(launch, result, err);
  return code;
}

int start(const OptionWords& words, std::ostream& out, std::ostream& err) {
  Launch launch = prepare(words);
  export_if_asked(words);
  if (launch.program.empty()) {
    check(words.has("export-config"), ErrorKind::value,
          "there is no program to start; `poprun --help` says how");
    return 0;
  }
  const int open_mpi = find_open_mpi();
  if (open_mpi > 0) launch.open_mpi = open_mpi;
  if (launch.options.dry_run) {
    show_dry_run(launch, out);
    return 0;
  }
  const bool is_local = !leaves_this_host(launch);
  if (const auto problem = problem_with_program(launch.program.front(), variable("PATH"));
      problem && is_local) {
    err << "poprun: " << problem->sentence << '\n';
    return problem->exit_code;
  }
  const bool is_alone = launch.instances.size() == 1 && is_local;
  check(open_mpi > 0 || is_alone,
        "{} instances need mpirun, which is not installed; install the package openmpi-bin",
        launch.instances.size());
  describe(launch, err);
  err << std::flush;
  return open_mpi > 0 ? run_with_mpirun(launch, err) : run_alone(launch);
}

int run(const std::vector<std::string>& arguments, std::ostream& out, std::ostream& err) {
  if (!arguments.empty() && arguments.front() == supervisor_word) {
    return supervise(supervisor_job(arguments));
  }
  const OptionWords words = all_options(read_option_words(arguments));
  if (words.has("help")) {
    out << help_text();
    return 0;
  }
  if (words.has("version")) {
    out << "poprun of Tessera " TESSERA_VERSION "\n";
    return 0;
  }
  return start(words, out, err);
}

}  // namespace

int run_poprun(const std::vector<std::string>& arguments, std::ostream& out, std::ostream& err) {
  try {
    return run({arguments.begin() + 1, arguments.end()}, out, err);
  } catch (const Error& error) {
    err << "poprun: " << error.message() << '\n';
    return error.kind() == ErrorKind::value ? wrong_usage : failed;
  } catch (const std::exception& error) {
    err << "poprun: " << error.what() << '\n';
    return failed;
  }
}

}  // namespace tessera
