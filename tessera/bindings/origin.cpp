#include <unordered_map>
#include <vector>

#include "tessera/bindings/bindings.h"

// After Python.h, which bindings.h brings.
#include <frameobject.h>

namespace py = pybind11;

namespace tessera {
namespace {

std::vector<std::string>& module_stack() {
  static std::vector<std::string> stack;
  return stack;
}

std::string folder_of(const char* package) {
  const auto file = py::module_::import(package).attr("__file__").cast<std::string>();
  return file.substr(0, file.rfind('/') + 1);
}

// Frames of these packages are not what the user wrote.
bool is_ours(const std::string& file) {
  static const std::vector<std::string> folders = {folder_of("torch"), folder_of("poptorch")};
  for (const std::string& folder : folders) {
    if (file.starts_with(folder)) return true;
  }
  return file.starts_with("<");
}

}  // namespace

void push_module(std::string path) { module_stack().push_back(std::move(path)); }

void pop_module() {
  if (!module_stack().empty()) module_stack().pop_back();
}

void clear_modules() { module_stack().clear(); }

Origin python_origin() {
  const py::gil_scoped_acquire gil;
  Origin origin;
  if (!module_stack().empty()) origin.module = module_stack().back();
  auto frame = py::reinterpret_steal<py::object>(
      reinterpret_cast<PyObject*>(PyThreadState_GetFrame(PyThreadState_Get())));
  while (frame) {
    auto* raw = reinterpret_cast<PyFrameObject*>(frame.ptr());
    const auto code =
        py::reinterpret_steal<py::object>(reinterpret_cast<PyObject*>(PyFrame_GetCode(raw)));
    auto file = code.attr("co_filename").cast<std::string>();
    if (!is_ours(file)) {
      origin.file = std::move(file);
      origin.line = PyFrame_GetLineNumber(raw);
      break;
    }
    frame = py::reinterpret_steal<py::object>(reinterpret_cast<PyObject*>(PyFrame_GetBack(raw)));
  }
  return origin;
}

}  // namespace tessera
