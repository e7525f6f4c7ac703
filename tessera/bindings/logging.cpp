#include <pybind11/stl.h>

#include "tessera/base/error_log.h"
#include "tessera/base/log.h"
#include "tessera/bindings/bindings.h"

namespace py = pybind11;

namespace tessera {

void bind_logging(py::module_& module) {
  module.def("log_level", [] { return static_cast<int>(log_level()); });
  module.def("set_log_level", [](int level) { set_log_level(static_cast<LogLevel>(level)); });
  // None where no level has this name.
  module.def("log_level_named", [](std::string_view name) -> std::optional<int> {
    const auto level = log_level_named(name);
    return level ? std::optional(static_cast<int>(*level)) : std::nullopt;
  });
  module.def("count_log", &count_log);
  module.def("limit_repeated_logs", &limit_repeated_logs);
  module.def("write_log", [](int level, std::string_view message) {
    log(static_cast<LogLevel>(level), "{}", message);
  });
  module.def("set_error_log_folder", &set_error_log_folder);
}

}  // namespace tessera
