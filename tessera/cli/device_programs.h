// The programs gc-monitor, gc-info and gc-inventory: they show the virtual IPUs of this machine and
// who uses them. Each takes its arguments, beginning with its name, and returns the exit code: 0, 1
// where something went wrong, 2 where the arguments mean nothing; one sentence on `err` says what.
#pragma once

#include <iosfwd>
#include <string>
#include <vector>

namespace tessera {

int run_gc_monitor(const std::vector<std::string>& arguments, std::ostream& out, std::ostream& err);
int run_gc_info(const std::vector<std::string>& arguments, std::ostream& out, std::ostream& err);
int run_gc_inventory(const std::vector<std::string>& arguments, std::ostream& out,
                     std::ostream& err);

}  // namespace tessera
