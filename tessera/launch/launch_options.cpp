#include "tessera/launch/launch_options.h"

#include <charconv>

#include "tessera/base/error.h"
#include "tessera/launch/hosts.h"
#include "tessera/launch/option_table.h"
#include "tessera/launch/shell_words.h"

namespace tessera {
namespace {

// What an option was given, read as its row says.
struct Value {
  int64_t number = 0;
  bool yes = false;
  std::string text;
};

int64_t whole_number(const OptionRow& row, const std::string& text) {
  int64_t number = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  check(error == std::errc() && stop == end && number >= row.least && number <= row.most,
        ErrorKind::value, "--{} must be a whole number from {} to {}, got '{}'", row.name,
        row.least, row.most, text);
  return number;
}

void check_seconds(const OptionRow& row, const std::string& text) {
  double seconds = -1;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, seconds);
  check(error == std::errc() && stop == end && seconds > 0 &&
            seconds <= static_cast<double>(row.most),
        ErrorKind::value, "--{} must be a number of seconds above 0, got '{}'", row.name, text);
}

Value value_of(const OptionRow& row, const std::string& text) {
  Value value{.text = text};
  switch (row.kind) {
    case OptionKind::flag:
      break;
    case OptionKind::yes_or_no:
      check(is_yes_or_no(text), ErrorKind::value, "--{} must be yes or no, got '{}'", row.name,
            text);
      value.yes = is_yes(text);
      break;
    case OptionKind::number:
      value.number = whole_number(row, text);
      break;
    case OptionKind::seconds:
      check_seconds(row, text);
      break;
    case OptionKind::text:
      check(!text.empty(), ErrorKind::value, "--{} needs a value: {}", row.name, row.value);
      break;
    case OptionKind::text_or_none:
      break;
  }
  return value;
}

void append_words(std::vector<std::string>& list, const std::string& text) {
  const std::vector<std::string> words = split_words(text);
  list.insert(list.end(), words.begin(), words.end());
}

using Set = void (*)(LaunchOptions&, const Value&);

struct Setter {
  std::string_view name;
  Set set;
};

// Options that are in the table and not here have no effect, or are looked at before.
constexpr Setter setters[] = {
    {"num-replicas", [](LaunchOptions& o, const Value& v) { o.replicas = v.number; }},
    {"num-instances", [](LaunchOptions& o, const Value& v) { o.instances = v.number; }},
    {"ipus-per-replica", [](LaunchOptions& o, const Value& v) { o.ipus_per_replica = v.number; }},
    {"threads-per-instance",
     [](LaunchOptions& o, const Value& v) { o.threads_per_instance = v.number; }},
    {"executable-cache-path", [](LaunchOptions& o, const Value& v) { o.cache_path = v.text; }},
    {"instance-timeout", [](LaunchOptions& o, const Value& v) { o.instance_timeout = v.text; }},
    {"offline-mode", [](LaunchOptions& o, const Value& v) { o.offline = v.yes; }},
    {"host", [](LaunchOptions& o, const Value& v) { o.hosts = expand_hosts(v.text); }},
    {"mpi-global-args",
     [](LaunchOptions& o, const Value& v) { append_words(o.mpi_global, v.text); }},
    {"mpi-local-args", [](LaunchOptions& o, const Value& v) { append_words(o.mpi_local, v.text); }},
    {"only-output-from-instance",
     [](LaunchOptions& o, const Value& v) { o.only_output_from = v.number; }},
    {"print-topology", [](LaunchOptions& o, const Value& v) { o.print_topology = v.yes; }},
    {"dry-run", [](LaunchOptions& o, const Value&) { o.dry_run = true; }},
    {"verbose", [](LaunchOptions& o, const Value&) { ++o.verbosity; }},
    {"vv", [](LaunchOptions& o, const Value&) { o.verbosity = 2; }},
};

Set find_setter(std::string_view name) {
  for (const Setter& setter : setters) {
    if (setter.name == name) return setter.set;
  }
  return nullptr;
}

bool was_given(const std::vector<GivenOption>& given, std::string_view name) {
  return OptionWords{.given = given, .program = {}}.has(name);
}

}  // namespace

LaunchOptions options_of(const std::vector<GivenOption>& given) {
  LaunchOptions options;
  for (const GivenOption& option : given) {
    const OptionRow* row = find_option(option.name);
    TESSERA_INVARIANT(row != nullptr, "no option {}", option.name);
    const Value value = value_of(*row, option.text);
    if (const Set set = find_setter(option.name)) set(options, value);
    if (row->group == OptionGroup::accepted) options.without_effect.push_back("--" + option.name);
  }
  // A machine that is named shall have something to do.
  if (!was_given(given, "num-instances") && !options.hosts.empty()) {
    options.instances = static_cast<int64_t>(options.hosts.size());
  }
  check(!options.only_output_from || *options.only_output_from < options.instances,
        ErrorKind::value,
        "--only-output-from-instance {} is none of {} instances, which are counted from 0",
        options.only_output_from.value_or(0), options.instances);
  return options;
}

}  // namespace tessera
