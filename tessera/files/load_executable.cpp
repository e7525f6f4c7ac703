// From a file to a session: what loading makes of it.
#include <algorithm>

#include "tessera/base/error.h"
#include "tessera/files/executable_file.h"

namespace tessera {
namespace {

void check_states(const ExecutableFile& file, const Executable& executable) {
  const auto& saved = file.states();
  const auto& states = executable.states();
  check(saved.size() == states.size(), ErrorKind::value,
        "'{}' is damaged: it has {} states, its program has {}", file.path(), saved.size(),
        states.size());
  for (size_t i = 0; i < states.size(); ++i) {
    check(saved[i].name == states[i].name && saved[i].kind == states[i].kind &&
              saved[i].type == states[i].type,
          ErrorKind::value, "'{}' is damaged: state {} is '{}', {}; in its program '{}', {}",
          file.path(), i, saved[i].name, to_string(saved[i].type), states[i].name,
          to_string(states[i].type));
  }
}

void check_hyperparameters(const ExecutableFile& file, const Executable& executable) {
  const auto& saved = file.hyperparameters();
  const auto& wanted = executable.hyperparameters();
  const bool same =
      saved.empty() || std::equal(saved.begin(), saved.end(), wanted.begin(), wanted.end(),
                                  [](const SavedNumber& number, const NamedType& named) {
                                    return number.name == named.name;
                                  });
  check(same, ErrorKind::value,
        "'{}' is damaged: its hyper-parameters are not those of its program", file.path());
}

}  // namespace

CompileOptions options_to_load(const ExecutableFile& file, const CompileOptions& now) {
  CompileOptions options = file.options();
  options.target.level = std::min(options.target.level, now.target.level);
  options.threads = now.threads;
  options.logged_lines = now.logged_lines;
  options.progress = now.progress;
  options.verify_passes = now.verify_passes;
  return options;
}

std::shared_ptr<const Executable> load_executable(const ExecutableFile& file,
                                                  const CompileOptions& now) {
  const ErrorContext where("loading '{}'", file.path());
  return load_executable(file, file.graph(), file.signature(), now);
}

std::shared_ptr<const Executable> load_executable(const ExecutableFile& file, Graph graph,
                                                  StepSignature signature,
                                                  const CompileOptions& now) {
  const ErrorContext where("loading '{}'", file.path());
  auto executable =
      compile_step(std::move(graph), std::move(signature), options_to_load(file, now));
  check_states(file, *executable);
  check_hyperparameters(file, *executable);
  return executable;
}

void restore(Session& session, const ExecutableFile& file) {
  const ErrorContext where("restoring the values of '{}'", file.path());
  check_states(file, session.executable());
  check_hyperparameters(file, session.executable());
  for (size_t i = 0; file.has_states() && i < file.states().size(); ++i) {
    session.write_state(i, file.state_value(i));
  }
  for (size_t i = 0; i < file.hyperparameters().size(); ++i) {
    session.set_hyperparameter(i, file.hyperparameters()[i].value);
  }
  if (file.rng()) session.set_rng(*file.rng());
}

}  // namespace tessera
