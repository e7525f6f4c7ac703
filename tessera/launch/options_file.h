// Options of poprun in a JSON file: an object with their names, numbers as numbers, yes and no as
// true and false, and a list where an option was given several times.
#pragma once

#include <string>
#include <vector>

#include "tessera/launch/option_words.h"

namespace tessera {

// Error where the file cannot be read, is no such object, or has something that is no option of
// one start: those that name files, --dry-run and --help.
std::vector<GivenOption> import_options(const std::string& path);

// What import_options() reads, of options that options_of() took. Written whole or not at all.
// Error where that fails, or where the file is there and may not be overwritten.
void export_options(const std::string& path, const std::vector<GivenOption>& given, bool overwrite);

// The command line wins: of what a file says, the options that were not given.
std::vector<GivenOption> with_defaults(const std::vector<GivenOption>& given,
                                       const std::vector<GivenOption>& defaults);

}  // namespace tessera
