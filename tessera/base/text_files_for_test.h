// Cases that tests read from text files.
#pragma once

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace tessera {

inline std::string text_of_file(const std::filesystem::path& file) {
  std::ostringstream text;
  text << std::ifstream(file).rdbuf();
  return text.str();
}

// What stands between lines that are the separator.
inline std::vector<std::string> split_at_lines(const std::string& text,
                                               const std::string& separator) {
  std::vector<std::string> parts(1);
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line == separator) {
      parts.emplace_back();
    } else {
      parts.back() += line + '\n';
    }
  }
  return parts;
}

}  // namespace tessera
