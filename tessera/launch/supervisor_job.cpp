#include "tessera/launch/supervisor_job.h"

#include <fmt/ranges.h>

#include <charconv>

#include "tessera/base/error.h"
#include "tessera/launch/hosts.h"

namespace tessera {
namespace {

// Reads words name=value in the order in which they were written.
class ValueReader {
 public:
  explicit ValueReader(const std::vector<std::string>& words) : words_(words) {}

  std::string text(std::string_view name) {
    const std::string prefix = fmt::format("{}=", name);
    check(at_ < words_.size() && words_[at_].starts_with(prefix), ErrorKind::value,
          "{} is for poprun itself; `poprun --help` says how to start a program", supervisor_word);
    return words_[at_++].substr(prefix.size());
  }

  int64_t number(std::string_view name) {
    const std::string digits = text(name);
    int64_t number = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
    check(error == std::errc() && end == digits.data() + digits.size(), ErrorKind::value,
          "{}={} must be a number in the arguments of a supervisor", name, digits);
    return number;
  }

  // All that is left.
  std::vector<std::string> rest() const {
    return {words_.begin() + static_cast<std::ptrdiff_t>(at_), words_.end()};
  }

 private:
  const std::vector<std::string>& words_;
  size_t at_ = 1;  // after the supervisor_word
};

bool is_only_colons(const std::string& word) {
  return !word.empty() && word.find_first_not_of(':') == std::string::npos;
}

}  // namespace

const char* const supervisor_word = "--as-instance";

// mpirun takes a colon for the end of a command, so those of the program get a second one.
std::vector<std::string> words_of(const SupervisorJob& job) {
  std::vector<std::string> words = {supervisor_word,
                                    fmt::format("index={}", job.index),
                                    fmt::format("hosts={}", fmt::join(job.hosts, ",")),
                                    fmt::format("instances={}", job.instances),
                                    fmt::format("replicas={}", job.replicas),
                                    fmt::format("ipus={}", job.ipus_per_replica),
                                    fmt::format("output={}", job.output_from),
                                    fmt::format("bind={}", job.binds ? 1 : 0),
                                    fmt::format("packets={}", job.has_poprun ? 1 : 0)};
  for (const std::string& word : job.program)
    words.push_back((is_only_colons(word) ? ":" : "") + word);
  return words;
}

SupervisorJob supervisor_job(const std::vector<std::string>& words) {
  ValueReader reader(words);
  SupervisorJob job;
  job.index = reader.number("index");
  job.hosts = expand_hosts(reader.text("hosts"));
  job.instances = reader.number("instances");
  job.replicas = reader.number("replicas");
  job.ipus_per_replica = reader.number("ipus");
  job.output_from = reader.number("output");
  job.binds = reader.number("bind") != 0;
  job.has_poprun = reader.number("packets") != 0;
  job.program = reader.rest();
  for (std::string& word : job.program) {
    if (is_only_colons(word)) word.pop_back();
  }
  check(!job.program.empty() && job.instances > 0, ErrorKind::value,
        "the arguments of a supervisor name no program");
  return job;
}

}  // namespace tessera
