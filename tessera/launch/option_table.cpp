#include "tessera/launch/option_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace tessera {
namespace {

using Kind = OptionKind;
using Group = OptionGroup;

constexpr int64_t most_processes = 65536, most_ipus = 4096, most_threads = 1024;
constexpr int64_t most_seconds = 1000000000;

constexpr OptionRow rows[] = {
    {"num-replicas", 0, Kind::number, Group::start, "N",
     "Replicas of all instances together (1); a multiple of the instances", 1, most_processes},
    {"num-instances", 0, Kind::number, Group::start, "N",
     "Processes to start (1, or one for each host)", 1, most_processes},
    {"ipus-per-replica", 0, Kind::number, Group::start, "N", "IPUs of a replica (1)", 1, most_ipus},
    {"threads-per-instance", 0, Kind::number, Group::start, "N",
     "Threads of an instance (its share of the CPUs)", 1, most_threads},
    {"executable-cache-path", 0, Kind::text_or_none, Group::start, "FOLDER",
     "Where the instances keep compiled programs"},
    {"instance-timeout", 0, Kind::seconds, Group::start, "SECONDS",
     "How long an instance waits for the others", 0, most_seconds},
    {"offline-mode", 0, Kind::yes_or_no, Group::start, "yes|no",
     "Instances compile only, and take no IPUs (no)"},
    {"numa-aware", 0, Kind::yes_or_no, Group::accepted, "yes|no",
     "Instances have neighbouring cores in any case"},

    {"host", 'H', Kind::text, Group::hosts, "LIST",
     "Hosts, over which the instances are spread: a,b or host[0-2,4]"},
    {"allow-run-as-root", 0, Kind::yes_or_no, Group::mpi, "yes|no",
     "Accepted: root may always use poprun"},
    {"mpi-global-args", 0, Kind::text_or_none, Group::mpi, "ARGS",
     "Arguments for mpirun as a whole; several times, they add up"},
    {"mpi-local-args", 0, Kind::text_or_none, Group::mpi, "ARGS",
     "Arguments for mpirun at each instance, such as '-x NAME'"},

    {"only-output-from-instance", 0, Kind::number, Group::output, "N",
     "Show the output of this instance; of others only why they failed", 0, most_processes},
    {"print-topology", 0, Kind::yes_or_no, Group::output, "yes|no",
     "Show a table of the instances first (yes)"},
    {"dry-run", 0, Kind::flag, Group::output, "", "Show what would be run, and run nothing"},
    {"verbose", 'v', Kind::flag, Group::output, "",
     "Say more: the command that is run, options without effect"},
    {"vv", 0, Kind::flag, Group::output, "", "The same as -vv: also all that mpirun says"},

    {"import-config", 0, Kind::text, Group::files, "FILE",
     "Read options from a JSON file; the command line wins"},
    {"export-config", 0, Kind::text, Group::files, "FILE", "Write the options to a JSON file"},
    {"overwrite-config", 0, Kind::yes_or_no, Group::files, "yes|no",
     "Whether that file may be there already (no)"},

    {"vipu-partition", 0, Kind::text, Group::accepted, "NAME", "A partition"},
    {"vipu-partition-attempts", 0, Kind::number, Group::accepted, "N", "Attempts to get it", 1,
     most_processes},
    {"vipu-server-host", 0, Kind::text, Group::accepted, "HOST", "The V-IPU server"},
    {"vipu-server-port", 0, Kind::number, Group::accepted, "N", "Its port", 1, 65535},
    {"vipu-server-timeout", 0, Kind::seconds, Group::accepted, "SECONDS", "How long it may take", 0,
     most_seconds},
    {"vipu-allocation", 0, Kind::text, Group::accepted, "NAME", "An allocation"},
    {"vipu-cluster", 0, Kind::text, Group::accepted, "NAME", "A cluster"},
    {"reset-partition", 0, Kind::yes_or_no, Group::accepted, "yes|no", "Reset it first"},
    {"update-partition", 0, Kind::yes_or_no, Group::accepted, "yes|no", "Make it anew if needed"},
    {"remove-partition", 0, Kind::yes_or_no, Group::accepted, "yes|no", "Remove it afterwards"},
    {"num-ilds", 0, Kind::number, Group::accepted, "N", "IPU-Link domains", 1, most_processes},
    {"sync-type", 0, Kind::text, Group::accepted, "NAME", "How IPUs synchronise"},

    {"help", 'h', Kind::flag, Group::general, "", "This text"},
    {"version", 0, Kind::flag, Group::general, "", "The version"},
};

struct Heading {
  Group group;
  std::string_view text;
};

constexpr std::array headings = {
    Heading{Group::start, "What to start"},
    Heading{Group::hosts, "Where"},
    Heading{Group::output, "What to show"},
    Heading{Group::files, "Options in files"},
    Heading{Group::mpi, "mpirun"},
    Heading{Group::general, "About poprun"},
    Heading{Group::accepted,
            "Accepted without effect, for scripts that have them (virtual IPUs need no partition)"},
};

constexpr const char* usage =
    R"(usage: poprun [options] program [arguments of the program]

Starts a program as several processes, its instances, which train together. Each has its part of the
replicas, and finds in its environment which one it is.

  poprun --num-instances 2 --num-replicas 4 python3 train.py --epochs 3
  poprun --host node[0-3] --num-instances 8 --num-replicas 8 python3 train.py
)";

std::string line_of(const OptionRow& row) {
  std::string option =
      row.letter ? fmt::format("-{}, --{}", row.letter, row.name) : fmt::format("--{}", row.name);
  if (row.takes_value()) option += fmt::format(" {}", row.value);
  return fmt::format("  {:<35} {}\n", option, row.help);
}

}  // namespace

std::span<const OptionRow> option_table() { return rows; }

const OptionRow* find_option(std::string_view name) {
  const auto* found = std::find_if(std::begin(rows), std::end(rows),
                                   [&](const OptionRow& row) { return row.name == name; });
  return found == std::end(rows) ? nullptr : found;
}

const OptionRow* find_option(char letter) {
  const auto* found = std::find_if(std::begin(rows), std::end(rows),
                                   [&](const OptionRow& row) { return row.letter == letter; });
  return found == std::end(rows) || letter == 0 ? nullptr : found;
}

bool is_yes(std::string_view text) { return text == "yes" || text == "true" || text == "1"; }

bool is_yes_or_no(std::string_view text) {
  return is_yes(text) || text == "no" || text == "false" || text == "0";
}

std::string help_text() {
  std::string text = usage;
  for (const Heading& heading : headings) {
    text += fmt::format("\n{}:\n", heading.text);
    for (const OptionRow& row : rows) {
      if (row.group == heading.group) text += line_of(row);
    }
  }
  return text;
}

}  // namespace tessera
