// The machines that instances run on, as --host names them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tessera {

// `a,b` and `host[0-2,4]`, which stands for host0, host1, host2 and host4; host[08-10] keeps the
// zeros. Error where a name is no name, or stands there twice.
std::vector<std::string> expand_hosts(std::string_view list);

// What this machine calls itself.
std::string this_host();

bool is_this_host(std::string_view host);

}  // namespace tessera
