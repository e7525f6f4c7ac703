// poprun, the launcher: starts a program as several instances through mpirun, each under a
// supervisor, and ends all of them when one fails.
#pragma once

#include <iosfwd>
#include <string>
#include <vector>

namespace tessera {

// `arguments` begins with the name of the program. Returns the exit code: of the instance that
// failed first, 128 and the signal that ended the job, or 2 for arguments that cannot be meant.
int run_poprun(const std::vector<std::string>& arguments, std::ostream& out, std::ostream& err);

}  // namespace tessera
