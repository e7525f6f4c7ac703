#include "tessera/launch/program_file.h"

#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>
#include <sstream>

#include "tessera/launch/shell_words.h"

namespace tessera {
namespace {

constexpr int not_found = 127, not_executable = 126;

bool can_be_run(const std::string& file) {
  std::error_code error;
  return std::filesystem::is_regular_file(file, error) && access(file.c_str(), X_OK) == 0;
}

// For programs in Python there is another way to start them.
std::string advice(const std::string& program, const std::string& otherwise) {
  if (!program.ends_with(".py")) return otherwise;
  return fmt::format("write `poprun ... python3 {}`", shell_quoted(program));
}

}  // namespace

std::string find_on_path(const std::string& program, const std::string& path) {
  if (program.find('/') != std::string::npos) return can_be_run(program) ? program : "";
  std::istringstream folders(path);
  for (std::string folder; std::getline(folders, folder, ':');) {
    std::string file = (folder.empty() ? "." : folder) + "/" + program;
    if (can_be_run(file)) return file;
  }
  return "";
}

std::optional<ProgramProblem> problem_with_program(const std::string& program,
                                                   const std::string& path) {
  if (!find_on_path(program, path).empty()) return std::nullopt;
  std::error_code error;
  const bool is_file = std::filesystem::exists(program, error);
  if (is_file && std::filesystem::is_directory(program, error)) {
    return ProgramProblem{not_executable, fmt::format("'{}' is a folder, not a program", program)};
  }
  const bool has_folder = program.find('/') != std::string::npos;
  if (is_file && access(program.c_str(), X_OK) == 0 && !has_folder) {
    return ProgramProblem{
        not_found, fmt::format("there is no program '{}' on PATH; for the file here {}", program,
                               advice(program, fmt::format("write ./{}", program)))};
  }
  if (is_file) {
    const std::string way = fmt::format("`chmod +x {}` makes it so", shell_quoted(program));
    return ProgramProblem{not_executable,
                          fmt::format("'{}' is not executable; {}", program, advice(program, way))};
  }
  return ProgramProblem{not_found, has_folder
                                       ? fmt::format("there is no program '{}'", program)
                                       : fmt::format("there is no program '{}' on PATH", program)};
}

}  // namespace tessera
