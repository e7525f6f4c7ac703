#include "tessera/launch/options_file.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tessera/base/error.h"
#include "tessera/base/replace_file.h"
#include "tessera/launch/option_table.h"

namespace tessera {
namespace {

using Json = nlohmann::ordered_json;

// Whether it says how a program is started, and not only what is done this time.
bool belongs_into_file(const OptionRow& row) {
  return row.group != OptionGroup::files && row.group != OptionGroup::general &&
         row.name != "dry-run";
}

bool adds_up(const OptionRow& row) {
  return row.name == "mpi-global-args" || row.name == "mpi-local-args";
}

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  check(file.good() && text.good(), ErrorKind::value,
        "cannot read the options in '{}' (--import-config): {}", path, std::strerror(errno));
  return text.str();
}

// As it would stand on the command line.
std::string text_of(const OptionRow& row, const Json& value, const std::string& path) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_boolean() && row.kind == OptionKind::yes_or_no) return value ? "yes" : "no";
  if (value.is_number() && (row.kind == OptionKind::number || row.kind == OptionKind::seconds)) {
    return value.dump();
  }
  fail(ErrorKind::value, "'{}' in '{}' cannot be {}", row.name, path, value.dump());
}

void read_option(std::vector<GivenOption>& given, const OptionRow& row, const Json& value,
                 const std::string& path) {
  const std::string name(row.name);
  if (row.kind == OptionKind::flag) {
    check(value.is_boolean(), ErrorKind::value, "'{}' in '{}' must be true or false", name, path);
    if (value) given.push_back({name, ""});
  } else if (value.is_array() && adds_up(row)) {
    for (const Json& item : value) given.push_back({name, text_of(row, item, path)});
  } else {
    given.push_back({name, text_of(row, value, path)});
  }
}

Json json_of(const GivenOption& option, const OptionRow& row) {
  switch (row.kind) {
    case OptionKind::flag:
      return true;
    case OptionKind::yes_or_no:
      return is_yes(option.text);
    case OptionKind::number:
      return std::stoll(option.text);
    case OptionKind::seconds:
      return std::stod(option.text);
    default:
      return option.text;
  }
}

}  // namespace

std::vector<GivenOption> import_options(const std::string& path) {
  const Json file = Json::parse(read_file(path), nullptr, /*allow_exceptions=*/false);
  check(file.is_object(), ErrorKind::value,
        "'{}' (--import-config) must hold a JSON object of options, as --export-config writes it",
        path);
  std::vector<GivenOption> given;
  for (const auto& [name, value] : file.items()) {
    const OptionRow* row = find_option(name);
    check(row != nullptr && belongs_into_file(*row), ErrorKind::value,
          "'{}' in '{}' is no option that a file may have; `poprun --help` lists the options", name,
          path);
    read_option(given, *row, value, path);
  }
  return given;
}

void export_options(const std::string& path, const std::vector<GivenOption>& given,
                    bool overwrite) {
  Json file = Json::object();
  for (const GivenOption& option : given) {
    const OptionRow& row = *find_option(option.name);
    if (!belongs_into_file(row)) continue;
    if (adds_up(row)) {
      file[option.name].push_back(option.text);
    } else {
      file[option.name] = json_of(option, row);
    }
  }
  check(overwrite || !std::filesystem::exists(path), ErrorKind::value,
        "'{}' (--export-config) is there already; --overwrite-config yes replaces it", path);
  check(replace_file(path, file.dump(2) + "\n"), "cannot write '{}' (--export-config): {}", path,
        std::strerror(errno));
}

std::vector<GivenOption> with_defaults(const std::vector<GivenOption>& given,
                                       const std::vector<GivenOption>& defaults) {
  const OptionWords words{.given = given, .program = {}};
  std::vector<GivenOption> all;
  for (const GivenOption& option : defaults) {
    if (!words.has(option.name)) all.push_back(option);
  }
  all.insert(all.end(), given.begin(), given.end());
  return all;
}

}  // namespace tessera
