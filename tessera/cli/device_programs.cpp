#include "tessera/cli/device_programs.h"

#include <fmt/ranges.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <ctime>
#include <functional>
#include <iostream>
#include <thread>

#include "tessera/base/error.h"
#include "tessera/cli/cli_text.h"
#include "tessera/cli/device_tables.h"

namespace tessera {
namespace {

constexpr int failed = 1;
constexpr int wrong_usage = 2;
constexpr const char* about_devices =
    "The IPUs are virtual: TESSERA_NUM_IPUS says how many there are, and all programs of a user\n"
    "share them (TESSERA_DEVICE_DIR says where).";

// Parses the arguments and runs the program; whatever goes wrong is one line on `err`.
int run_program(CLI::App& app, const std::vector<std::string>& arguments, std::ostream& out,
                std::ostream& err, const std::function<void()>& program) {
  const std::string name = app.get_name();
  app.set_version_flag("--version", name + " of Tessera " TESSERA_VERSION);
  app.footer(about_devices);
  try {
    app.parse(std::vector<std::string>(arguments.rbegin(), arguments.rend() - 1));
    program();
    out << std::flush;
    check(out.good(), "cannot write the result");
    return 0;
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error, out, err);
    err << name << ": " << one_sentence(error.what()) << "; `" << name << " --help` says more\n";
    return wrong_usage;
  } catch (const Error& error) {
    err << name << ": " << one_line(error) << '\n';
  } catch (const std::exception& error) {
    err << name << ": " << error.what() << '\n';
  }
  return failed;
}

struct Monitor {
  bool json = false, no_cards = false, all_partitions = false;
  double seconds = 1;

  std::string text() const {
    const int64_t ipus = num_virtual_ipus();
    const std::vector<Attachment> attached = attachments(ipus);
    const int64_t now = std::time(nullptr);
    if (json) return monitor_json(ipus, attached, now, !no_cards);
    return (no_cards ? "" : card_table(ipus)) + process_table(attached, now);
  }

  // Until Ctrl-C.
  void watch(std::ostream& out) const {
    const bool on_terminal = &out == &std::cout && isatty(STDOUT_FILENO) && !json;
    for (;;) {
      out << (on_terminal ? "\x1b[H\x1b[2J" : "") << text() << std::flush;
      check(out.good(), "cannot write the result");
      std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
    }
  }
};

struct Info {
  bool list = false, info = false, json = false, count = false;
  int64_t id = -1;

  std::string text() const {
    const int64_t ipus = num_virtual_ipus();
    if (count) return std::to_string(ipus) + '\n';
    if (list) return json ? device_list_json(ipus) : device_list(ipus);
    const auto device = device_of_id(ipus, id);
    check(device.has_value(), ErrorKind::value,
          "there is no device {}; there are {}, and `gc-info -l` lists them", id,
          all_devices(ipus).size());
    const std::vector<Attachment> attached = attachments(ipus);
    return json ? device_description_json(ipus, *device, attached) + '\n'
                : device_description(ipus, *device, attached);
  }
};

std::string inventory(bool json) {
  const int64_t ipus = num_virtual_ipus();
  const std::vector<Attachment> attached = attachments(ipus);
  std::vector<std::string> devices;
  for (const DeviceInfo& device : all_devices(ipus)) {
    devices.push_back(json ? device_description_json(ipus, device, attached)
                           : device_description(ipus, device, attached));
  }
  if (!json) return fmt::format("{}", fmt::join(devices, "\n"));
  return fmt::format("{{\"devices\": [\n  {}\n]}}\n", fmt::join(devices, ",\n  "));
}

}  // namespace

int run_gc_monitor(const std::vector<std::string>& arguments, std::ostream& out,
                   std::ostream& err) {
  CLI::App app("Shows the IPUs and the processes that use them.", "gc-monitor");
  Monitor monitor;
  app.add_flag("--json", monitor.json, "As JSON");
  app.add_flag("--no-card-info", monitor.no_cards, "Only the processes");
  app.add_flag("--all-partitions", monitor.all_partitions, "Accepted: there is one partition");
  CLI::Option* watch = app.add_option("--watch", monitor.seconds,
                                      "Again and again, so many seconds apart; 1 if left out")
                           ->expected(0, 1)
                           ->type_name("SECONDS")
                           ->check(CLI::Range(0.01, 86400.0));
  return run_program(app, arguments, out, err, [&] {
    if (watch->count() > 0) {
      if (monitor.seconds == 0) monitor.seconds = 1;  // no number was given
      monitor.watch(out);
    }
    out << monitor.text();
  });
}

int run_gc_info(const std::vector<std::string>& arguments, std::ostream& out, std::ostream& err) {
  CLI::App app("Shows the devices: single IPUs, and groups of 2, 4, 8 and so on.", "gc-info");
  Info info;
  auto* what = app.add_option_group("what", "What to show");
  what->add_flag("-l,--list-devices", info.list, "All devices with their ids");
  what->add_flag("-i,--device-info", info.info, "What is known about the device -d");
  what->add_flag("--ipu-count", info.count, "How many IPUs there are");
  what->require_option(1);
  app.add_option("-d,--device-id", info.id, "The id of a device")->type_name("ID");
  app.add_flag("--json", info.json, "As JSON");
  return run_program(app, arguments, out, err, [&] {
    if (info.info && app.get_option("-d")->count() == 0) {
      throw CLI::RequiredError("--device-info needs --device-id, which");
    }
    out << info.text();
  });
}

int run_gc_inventory(const std::vector<std::string>& arguments, std::ostream& out,
                     std::ostream& err) {
  CLI::App app("Shows what is known about every device.", "gc-inventory");
  bool json = false;
  app.add_flag("-j,--json", json, "As JSON");
  return run_program(app, arguments, out, err, [&] { out << inventory(json); });
}

}  // namespace tessera
