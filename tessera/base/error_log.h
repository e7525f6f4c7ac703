// Errors whose text is too long for a terminal, such as one that lists every node of a graph: the
// text goes to a file, the user sees its beginning and the file's name.
#pragma once

#include <string>

namespace tessera {

// Where the file is written from now on; "." at first.
void set_error_log_folder(std::string folder);

// The message as it is; where it has more than 80 lines, its beginning and where the whole was
// written: <folder>/poptorch_error.log. A file that cannot be written leaves the message whole.
std::string shortened_error(const std::string& message);

}  // namespace tessera
