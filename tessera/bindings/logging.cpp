#include "tessera/api/logging.h"

#include <pybind11/stl.h>

#include "tessera/base/log.h"
#include "tessera/bindings/bindings.h"

namespace py = pybind11;

namespace tessera {

void bind_logging(py::module_& module) {
  module.def("log_level", [] { return static_cast<int>(log_level()); });
  module.def("setLogLevel", py::overload_cast<std::string_view>(&setLogLevel));
  module.def("setLogLevel", py::overload_cast<int64_t>(&setLogLevel));
  module.def("count_log", &count_log);
  module.def("limit_repeated_logs", &limit_repeated_logs);
  module.def("write_log", [](int level, std::string_view message) {
    log(static_cast<LogLevel>(level), "{}", message);
  });
}

}  // namespace tessera
