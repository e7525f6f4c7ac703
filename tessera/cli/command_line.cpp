#include "tessera/cli/command_line.h"

#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <ostream>
#include <span>

#include "tessera/backend/cpu/lower/rewrites.h"
#include "tessera/base/error.h"
#include "tessera/cli/cli_text.h"
#include "tessera/cli/inspect.h"
#include "tessera/cli/networks.h"
#include "tessera/cli/ops_table.h"
#include "tessera/cli/quantities.h"
#include "tessera/cli/scale.h"
#include "tessera/cli/summary.h"
#include "tessera/cli/time_graph.h"
#include "tessera/files/executable_file.h"
#include "tessera/ir/text.h"
#include "tessera/passes/pipeline.h"
#include "tessera/passes/read_graph.h"
#include "tessera/runtime/compile.h"
#include "tessera/runtime/environment.h"

namespace tessera {
namespace {

constexpr int failed = 1;
constexpr int wrong_usage = 2;

struct OpsCommand {
  std::string name;
  bool markdown = false;

  CLI::App* declare(CLI::App& app) {
    CLI::App* command = app.add_subcommand("ops", "Print the operator table");
    command->add_option("NAME", name, "Only this operator, by our name or ATen's, in detail");
    command->add_flag("--markdown", markdown, "As a Markdown table");
    return command;
  }

  std::string run() const {
    if (!name.empty()) return describe_op(name);
    return markdown ? ops_as_markdown() : ops_as_text();
  }
};

std::string read_file(const std::string& file) {
  std::error_code ignored;
  check(!std::filesystem::is_directory(file, ignored), ErrorKind::value,
        "cannot read '{}': it is a folder", file);
  errno = 0;
  std::ifstream stream(file, std::ios::binary);
  std::string text;
  if (stream.is_open()) text.assign(std::istreambuf_iterator<char>(stream), {});
  check(stream.is_open() && !stream.bad(), ErrorKind::value, "cannot read '{}': {}", file,
        std::strerror(errno ? errno : EIO));
  return text;
}

// Text has lines and tabs, but no other control characters.
bool is_text(std::string_view bytes) {
  return std::none_of(bytes.begin(), bytes.end(),
                      [](unsigned char c) { return (c < ' ' && !std::isspace(c)) || c == 0x7f; });
}

std::string read_text(const std::string& file, std::istream& in) {
  const bool piped = file == "-";
  std::string text = piped ? std::string{std::istreambuf_iterator<char>(in), {}} : read_file(file);
  const std::string name = piped ? "the standard input" : fmt::format("'{}'", file);
  check(text.find_first_not_of(" \t\r\n") != std::string::npos, ErrorKind::value,
        "{} is empty; the text of a graph was wanted, which begins with 'graph'", name);
  check(is_text(text), ErrorKind::value,
        "{} is no text; the text of a graph was wanted, which begins with 'graph'", name);
  return text;
}

struct ShowCommand {
  std::string file = "-";

  CLI::App* declare(CLI::App& app) {
    CLI::App* command =
        app.add_subcommand("show", "Count what a graph is made of, and what is not native");
    command->add_option("FILE", file, "The graph's text; - is the standard input")
        ->default_str("-");
    return command;
  }

  std::string run(std::istream& in) const {
    return summary(read_graph(read_text(file, in), FromFile::any_host_call));
  }
};

struct TimeCommand {
  std::string file = "-";
  int64_t runs = 20;
  int threads = threads_of_environment();
  bool calls = false;

  CLI::App* declare(CLI::App& app) {
    CLI::App* command = app.add_subcommand(
        "time", "Run a graph on made-up values; say how long it takes and what is not native");
    command->add_option("--runs", runs, "How many steps to time")->capture_default_str();
    command->add_option("--threads", threads, "Threads to run with")->capture_default_str();
    command->add_flag("--calls", calls, "Show where the time goes, by operator and kernel");
    command->add_option("FILE", file, "The graph's text; - is the standard input")
        ->default_str("-");
    return command;
  }

  std::string run(std::istream& in) const {
    return time_graph(read_graph(read_text(file, in)), runs, threads, calls);
  }
};

struct TraceCommand {
  std::string file = "-", out = "trace.json";
  int64_t steps = 5;
  int threads = threads_of_environment();

  CLI::App* declare(CLI::App& app) {
    CLI::App* command = app.add_subcommand(
        "trace", "Run a graph on made-up values and write a timeline for ui.perfetto.dev");
    command->add_option("--out", out, "The file to write")->capture_default_str();
    command->add_option("--steps", steps, "How many steps to record")->capture_default_str();
    command->add_option("--threads", threads, "Threads to run with")->capture_default_str();
    command->add_option("FILE", file, "The graph's text; - is the standard input")
        ->default_str("-");
    command->footer(
        "A program's own steps are recorded with TESSERA_TRACE=FILE in its environment.");
    return command;
  }

  std::string run(std::istream& in) const {
    return trace_graph(read_graph(read_text(file, in)), out, steps, threads);
  }
};

struct CheckCommand {
  std::string file = "-";
  int64_t steps = 2;
  int threads = threads_of_environment();

  CLI::App* declare(CLI::App& app) {
    CLI::App* command = app.add_subcommand(
        "check",
        "Run a graph on made-up values, every call beside the plain kernel of its operator");
    command->add_option("--steps", steps, "How many steps to check")->capture_default_str();
    command->add_option("--threads", threads, "Threads to run with")->capture_default_str();
    command->add_option("FILE", file, "The graph's text; - is the standard input")
        ->default_str("-");
    command->footer("A program's own steps are checked with TESSERA_CHECK=1 in its environment.");
    return command;
  }

  std::string run(std::istream& in) const {
    return check_graph(read_graph(read_text(file, in)), steps, threads);
  }
};

struct WhyCommand {
  std::string file = "-";

  CLI::App* declare(CLI::App& app) {
    CLI::App* command =
        app.add_subcommand("why",
                           "Say what keeps a graph from running faster: what is not native, "
                           "not fused, or converted");
    command->add_option("FILE", file, "The graph's text; - is the standard input")
        ->default_str("-");
    return command;
  }

  std::string run(std::istream& in) const {
    return why_slow(read_graph(read_text(file, in), FromFile::any_host_call));
  }
};

struct InspectCommand {
  std::string file;
  bool json = false;

  CLI::App* declare(CLI::App& app) {
    CLI::App* command = app.add_subcommand(
        "inspect", "Say what is in the file of an executable: an export or an entry of a cache");
    command->add_option("FILE", file, "The file")->required();
    command->add_flag("--json", json, "As JSON");
    return command;
  }

  std::string run() const { return json ? inspect_as_json(file) : inspect(file); }
};

struct OptCommand {
  std::vector<std::string> passes;
  std::vector<std::string> skipped;
  bool whole_pipeline = false;
  bool with_rewrites = false;
  bool report = false;
  bool dump = false;
  std::string file = "-";

  CLI::App* declare(CLI::App& app) {
    CLI::App* command = app.add_subcommand("opt", "Read a graph, run passes over it and print it");
    auto* which = command->add_option_group("passes", "What to run");
    which->add_option("--pass", passes, "A pass or rewrite by name; may be given several times")
        ->allow_extra_args(false);
    which->add_flag("--pipeline", whole_pipeline, "All passes for any device, in their order");
    which->add_flag("--lower", with_rewrites, "These, then all rewrites for this CPU");
    which->require_option(1);
    command->add_option("--skip", skipped, "One of them to leave out")->allow_extra_args(false);
    command->add_flag("--report", report, "Say on stderr what each pass did and how long it took");
    command->add_flag("--dump", dump, "Print the graph on stderr after each pass");
    command->add_option("FILE", file, "The graph's text; - is the standard input")
        ->default_str("-");
    command->footer(list_of_passes());
    return command;
  }

  std::string run(std::istream& in, std::ostream& err) const {
    const std::vector<Pass> list = passes_to_run();
    PassOptions options{.disabled = skipped, .verify = true};
    if (dump) {
      options.dump = [&](const Pass& pass, const Graph& graph) {
        err << fmt::format("// after {}\n{}", pass.name, print(graph));
      };
    }
    check_disabled(skipped, list);  // before the graph is read
    Graph graph = read_graph(read_text(file, in), FromFile::any_host_call);
    for (const PassReport& done : run_passes(graph, list, options)) {
      if (!report) break;
      err << fmt::format("{:<18}{:>8} us {:>7} -> {} nodes\n", done.name, done.microseconds,
                         done.nodes_before, done.nodes_after);
    }
    return print(graph);
  }

 private:
  std::vector<Pass> passes_to_run() const {
    if (whole_pipeline) return pipeline();
    const std::vector<Pass> all = passes_of_a_compilation();
    if (with_rewrites) return all;
    std::vector<Pass> list;
    for (const std::string& name : passes) list.push_back(find_pass(all, name));
    return list;
  }

  static std::string lines_for(std::span<const Pass> passes) {
    std::string text;
    for (const Pass& pass : passes) text += fmt::format("  {:<18}{}\n", pass.name, pass.reason);
    return text;
  }

  static std::string list_of_passes() {
    return fmt::format("Passes for any device, in their order:\n{}Rewrites for this CPU:\n{}",
                       lines_for(pipeline()), lines_for(cpu::rewrites()));
  }
};

// Why a text cannot be parsed, or nothing: as CLI11 wants it, for which that is wrong usage.
template <typename Value>
std::string complaint_about(Value (*parse)(std::string_view), const std::string& text) {
  try {
    parse(text);
    return "";
  } catch (const Error& error) {
    return error.message();
  }
}

template <typename Value>
void add_parsed(CLI::App* command, const std::string& name, Value& value,
                Value (*parse)(std::string_view), const std::string& about) {
  command
      ->add_option_function<std::string>(
          name, [&value, parse](const std::string& text) { value = parse(text); }, about)
      ->check([parse](const std::string& text) { return complaint_about(parse, text); });
}

struct ScaleCommand {
  std::string file, network, plot;
  std::vector<std::string> buckets;
  ScaleReport report{.cluster = {.local = network_named("loopback").link}};
  std::vector<int64_t> nodes = parse_nodes("1,2,4,...,256");
  int64_t parameters = 0;
  double latency = -1, bandwidth = -1;
  bool no_overlap = false, json = false, list = false;

  CLI::App* declare(CLI::App& app) {
    CLI::App* command = app.add_subcommand(
        "scale", "Say how fast a training step would be on many nodes, on paper");
    Cluster& cluster = report.cluster;
    add_parsed(command, "--step-time", report.workload.step_seconds, parse_seconds,
               "What a step of one instance takes, its update included: 12.5ms");
    command->add_option("--samples", report.samples, "How many samples that step trains on");
    command->add_option("--network", network, "A network by name; --networks lists them");
    add_parsed(command, "--latency", latency, parse_seconds, "Of a message between nodes: 20us");
    add_parsed(command, "--bandwidth", bandwidth, parse_bandwidth,
               "Between nodes, in each direction: 10Gbit/s");
    add_parsed(command, "--nodes", nodes, parse_nodes, "How many, 1,2,4,...,256 unless given");
    command->add_option("--instances-per-node", cluster.instances_per_node, "Processes on a node")
        ->capture_default_str();
    add_parsed(command, "--local-latency", cluster.local.latency, parse_seconds,
               "Of a message within a node; loopback's unless given");
    add_parsed(command, "--local-bandwidth", cluster.local.bandwidth, parse_bandwidth,
               "Within a node; loopback's unless given");
    add_parsed(command, "--chunk", cluster.chunk_bytes, parse_bytes,
               "The most that is sent at once, 256KiB unless given; long chains have less");
    declare_gradients(command);
    command->add_flag("--no-overlap", no_overlap, "Send when all gradients are there");
    command->add_flag("--strong", cluster.strong, "Share the batch; otherwise each has as much");
    command->add_option("--plot", plot, "Also draw the speed-up to this file, as SVG");
    command->add_flag("--json", json, "As JSON");
    command->add_flag("--networks", list, "Only list the networks that have names");
    command->callback([this] { check_complete(); });
    return command;
  }

  std::string run(std::istream& in) {
    if (list) return list_of_networks();
    take_network();
    report.cluster.overlap = !no_overlap;
    take_gradients(in);
    price_all(report, nodes);
    if (!plot.empty()) write_plot(plot, report);
    return json ? scale_as_json(report) : scale_as_text(report);
  }

 private:
  // Where the buckets come from: one of these.
  void declare_gradients(CLI::App* command) {
    command->add_option("FILE", file,
                        "A training program: an executable's file or a graph's text; - is the "
                        "standard input");
    command
        ->add_option("--bucket", buckets,
                     "Instead of FILE, bytes that travel together: 4MiB; once for each bucket, the "
                     "one that is ready first, first")
        ->allow_extra_args(false)
        ->check([](const std::string& text) { return complaint_about(parse_bytes, text); });
    add_parsed(command, "--parameters", parameters, parse_count,
               "Instead of FILE, how many parameters the model has: 11.7M");
  }

  void check_complete() const {
    if (list) return;
    const auto wanted = [](bool given, const char* what) {
      if (!given) throw CLI::ValidationError(what);
    };
    wanted(report.workload.step_seconds > 0, "--step-time must say what a step takes, as 12.5ms");
    wanted(!network.empty() || (latency >= 0 && bandwidth >= 0),
           "the network is missing: --network NAME, or --latency and --bandwidth");
    wanted(!file.empty() + !buckets.empty() + (parameters != 0) == 1,
           "the gradients must be given once: a FILE, --bucket sizes or --parameters");
  }

  void take_network() {
    Link& link = report.cluster.network;
    if (!network.empty()) link = network_named(network).link;
    if (latency >= 0) link.latency = latency;
    if (bandwidth >= 0) link.bandwidth = bandwidth;
  }

  void take_gradients(std::istream& in) {
    GradientBuckets found;
    report.assumed = "buckets are assumed to be ready evenly over the last two thirds of the step";
    if (!file.empty()) {
      found = buckets_of_program(in);
      report.assumed = fmt::format(
          "buckets leave when the nodes before them have run, by their costs; update {:.1f} %",
          100 * found.update_share);
    } else if (parameters != 0) {
      report.source = fmt::format("of {} parameters", parameters);
      found = buckets_of_parameters(parameters);
    } else {
      report.source = "as given";
      std::vector<int64_t> sizes;
      for (const std::string& size : buckets) sizes.push_back(parse_bytes(size));
      found = buckets_of(sizes);
    }
    report.workload.buckets = std::move(found.buckets);
    report.workload.update_share = found.update_share;
  }

  // Text is a graph; whatever else it is, the reader of executables says.
  GradientBuckets buckets_of_program(std::istream& in) {
    if (file == "-" || is_text(read_file(file))) {
      const Graph step = read_graph(read_text(file, in), FromFile::any_host_call);
      report.source = fmt::format("of program '{}'", shown(step.name));
      return buckets_of(step, 1);
    }
    const ExecutableFile executable(file);
    const Graph step = executable.graph(FromFile::any_host_call);
    const StepSignature signature = executable.signature();
    check_fits(signature, step);
    report.source = fmt::format("of program '{}'", shown(step.name));
    return buckets_of(step, signature.gradient_accumulation);
  }
};

// What is wrong with the arguments, as one sentence.
std::string wrong_arguments(const CLI::App& app, const std::vector<std::string>& arguments,
                            const CLI::ParseError& error) {
  std::vector<std::string> commands;
  for (const CLI::App* command : app.get_subcommands({})) commands.push_back(command->get_name());
  const std::string first = arguments.size() > 1 ? arguments[1] : "";
  const bool known = std::find(commands.begin(), commands.end(), first) != commands.end();
  if (first.empty() || first.starts_with('-') || known) return one_sentence(error.what());
  return fmt::format("there is no command '{}'; there are {}", first, fmt::join(commands, ", "));
}

int run(const std::vector<std::string>& arguments, std::istream& in, std::ostream& out,
        std::ostream& err) {
  CLI::App app(
      "Tessera runs whole PyTorch training steps as one static program on CPUs.\n"
      "This tool shows what it is made of: the operators it knows and what passes do.",
      "tessera");
  app.set_version_flag("--version", "tessera " TESSERA_VERSION);
  app.require_subcommand(1);
  app.footer(
      "Examples:\n"
      "  tessera ops relu\n"
      "  tessera show step.ir\n"
      "  tessera time --calls step.ir\n"
      "  tessera trace --out step.json step.ir\n"
      "  tessera check step.ir\n"
      "  tessera why step.ir\n"
      "  tessera inspect model.poptorch\n"
      "  tessera scale --step-time 12.5ms --network ethernet10 --parameters 11.7M\n"
      "  tessera opt --pipeline --report step.ir");
  OpsCommand ops;
  ShowCommand show;
  TimeCommand time;
  TraceCommand trace;
  CheckCommand referee;
  WhyCommand why;
  InspectCommand inspected;
  ScaleCommand scale;
  OptCommand opt;
  const CLI::App* ops_command = ops.declare(app);
  const CLI::App* show_command = show.declare(app);
  const CLI::App* time_command = time.declare(app);
  const CLI::App* trace_command = trace.declare(app);
  const CLI::App* check_command = referee.declare(app);
  const CLI::App* why_command = why.declare(app);
  const CLI::App* inspect_command = inspected.declare(app);
  const CLI::App* scale_command = scale.declare(app);
  opt.declare(app);
  try {
    std::vector<std::string> reversed(arguments.rbegin(), arguments.rend() - 1);
    app.parse(std::move(reversed));
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error, out, err);
    err << "tessera: " << wrong_arguments(app, arguments, error)
        << "; `tessera --help` says more\n";
    return wrong_usage;
  }
  out << (*ops_command       ? ops.run()
          : *show_command    ? show.run(in)
          : *time_command    ? time.run(in)
          : *trace_command   ? trace.run(in)
          : *check_command   ? referee.run(in)
          : *why_command     ? why.run(in)
          : *inspect_command ? inspected.run()
          : *scale_command   ? scale.run(in)
                             : opt.run(in, err))
      << std::flush;
  check(out.good(), "cannot write the result");
  return 0;
}

}  // namespace

int run_command_line(const std::vector<std::string>& arguments, std::istream& in, std::ostream& out,
                     std::ostream& err) {
  try {
    return run(arguments, in, out, err);
  } catch (const Error& error) {
    err << "tessera: " << one_line(error) << '\n';
  } catch (const std::exception& error) {
    err << "tessera: " << error.what() << '\n';
  }
  return failed;
}

}  // namespace tessera
