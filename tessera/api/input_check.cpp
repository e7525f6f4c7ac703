#include "tessera/api/input_check.h"

#include <sstream>

#include "tessera/base/error.h"

namespace tessera {

void check_readable(const std::string& name, const at::Tensor& tensor) {
  if (tensor.layout() == at::kStrided && tensor.is_cpu()) return;
  std::ostringstream layout;
  layout << tensor.layout();
  fail(ErrorKind::user,
       "input '{}' has the layout {} on the device {}; inputs must be dense tensors on the CPU",
       name, layout.str(), tensor.device().str());
}

}  // namespace tessera
