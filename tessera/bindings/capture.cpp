// What Python asks and says while a model is captured.
#include "tessera/torch/capture.h"

#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include "tessera/base/error.h"
#include "tessera/bindings/bindings.h"
#include "tessera/torch/aten_facts.h"
#include "tessera/torch/dispatch.h"

namespace py = pybind11;

namespace tessera {
namespace {

Recorder& recorder() {
  check(is_capturing(), "this can only be asked while forward runs inside a wrapped model");
  return *current_recorder();
}

}  // namespace

void bind_capture(py::module_& module) {
  module.def("is_capturing", &is_capturing);
  module.def("isCompilingWithDispatcher", &is_capturing);  // PopTorch's name of it
  module.def("push_module", &push_module);
  module.def("pop_module", &pop_module);
  module.def("clear_modules", &clear_modules);
  module.def(
      "has_value", [](const at::Tensor& tensor) { return recorder().may_look_at(tensor); },
      "Whether a tensor's values are known while capturing: not those of the program.");
  module.def("made_in_forward",
             [](const at::Tensor& tensor) { return recorder().made_in_forward(tensor); });
  module.def("refuse_value",
             [](const std::string& what) { guard_errors([&] { recorder().refuse_value(what); }); });
  module.def("losses_in_python", [] {
    const auto losses = losses_in_python();
    return std::vector<std::string>(losses.begin(), losses.end());
  });
  module.def("begin_multi_conv", [] { recorder().begin_multi_conv(); });
  module.def("forget_multi_conv", [] { recorder().forget_multi_conv(); });
  module.def(
      "end_multi_conv",
      [](const std::vector<bool>& halves) {
        std::vector<DType> partials;
        for (const bool half : halves) partials.push_back(half ? DType::f16 : DType::f32);
        return recorder().end_multi_conv(partials);
      },
      "Takes for each convolution whether its partials are halves; returns how many there are.");
  module.def("value_number",
             [](const at::Tensor& tensor) { return recorder().value_number(tensor); });
}

}  // namespace tessera
