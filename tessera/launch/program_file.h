// Looks for a program before it is started many times over.
#pragma once

#include <optional>
#include <string>

namespace tessera {

struct ProgramProblem {
  int exit_code;  // 127: there is none; 126: it cannot be run
  std::string sentence;
};

// None where it can be run. Without a slash in its name it is looked up in the folders of `path`,
// which are separated by colons.
std::optional<ProgramProblem> problem_with_program(const std::string& program,
                                                   const std::string& path);

// The file that would be run; empty where there is none.
std::string find_on_path(const std::string& program, const std::string& path);

}  // namespace tessera
