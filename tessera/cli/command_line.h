// The program `tessera`: shows the operator table and runs passes over graphs in their text form.
#pragma once

#include <iosfwd>
#include <string>
#include <vector>

namespace tessera {

// `arguments` begins with the program's name. Returns the exit code: 0, 1 where something went
// wrong (one sentence on `err` says what), 2 where the arguments mean nothing.
int run_command_line(const std::vector<std::string>& arguments, std::istream& in, std::ostream& out,
                     std::ostream& err);

}  // namespace tessera
