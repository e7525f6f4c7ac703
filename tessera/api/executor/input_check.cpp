#include "tessera/api/executor/input_check.h"

#include <sstream>

#include "tessera/api/spoken.h"
#include "tessera/base/error.h"
#include "tessera/torch/tensor_memory.h"

namespace tessera {
namespace {

constexpr std::string_view compiled_for_others =
    "The model was compiled for other inputs; call destroy() or wrap the model again to compile it "
    "for these";

}  // namespace

void check_readable(const std::string& name, const at::Tensor& tensor) {
  if (tensor.layout() == at::kStrided && tensor.is_cpu() && !tensor.is_nested()) {
    check(has_memory(tensor),
          "input '{}' has lost its memory: its storage has {} bytes, which is less than its "
          "elements need; give it a storage of its own, for example by clone() before resize_()",
          name, tensor.storage().nbytes());
    return;
  }
  std::ostringstream layout;
  layout << tensor.layout();
  fail(ErrorKind::user,
       "input '{}' has the layout {} on the device {}; inputs must be dense tensors on the CPU",
       name, layout.str(), tensor.device().str());
}

void check_memory(const std::string& name, const at::Tensor& tensor) {
  check(has_memory(tensor),
        "the weight '{}' has lost its memory: its storage was made smaller than its elements need; "
        "give it new values, for example by .data = ...",
        name);
}

void check_as_compiled(const std::string& name, const at::Tensor& tensor, at::ScalarType type,
                       const Shape& shape) {
  check(tensor.scalar_type() == type, "Data type mismatch for {}: expected {} but got {}. {}", name,
        spoken_type(type), spoken_type(tensor.scalar_type()), compiled_for_others);
  check(tensor.sizes() == shape,
        "Shape mismatch for {}: expected torch.Size({}) but got torch.Size({}). {}", name,
        spoken_sizes(shape), spoken_sizes(tensor.sizes()), compiled_for_others);
}

}  // namespace tessera
