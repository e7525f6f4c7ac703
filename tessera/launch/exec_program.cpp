#include "tessera/launch/exec_program.h"

#include <unistd.h>

#include <cerrno>

namespace tessera {

int exec_program(const std::vector<std::string>& words) {
  std::vector<char*> pointers;
  pointers.reserve(words.size() + 1);
  for (const std::string& word : words) pointers.push_back(const_cast<char*>(word.c_str()));
  pointers.push_back(nullptr);
  execvp(pointers.front(), pointers.data());
  return errno;
}

}  // namespace tessera
