#include <fmt/format.h>

#include <optional>
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

bool in_packages(const std::string& file) {
  static const std::vector<std::string> folders = {folder_of("torch"), folder_of("poptorch")};
  for (const std::string& folder : folders) {
    if (file.starts_with(folder)) return true;
  }
  return false;
}

// Frames of these packages, and of code without a file, are not what the user wrote.
bool is_ours(const std::string& file) { return in_packages(file) || file.starts_with("<"); }

struct Place {
  std::string file = {};
  int line = 0;
};

// The innermost frame whose file is not to be skipped.
std::optional<Place> innermost(bool (*skip)(const std::string& file)) {
  auto frame = py::reinterpret_steal<py::object>(
      reinterpret_cast<PyObject*>(PyThreadState_GetFrame(PyThreadState_Get())));
  while (frame) {
    auto* raw = reinterpret_cast<PyFrameObject*>(frame.ptr());
    const auto code =
        py::reinterpret_steal<py::object>(reinterpret_cast<PyObject*>(PyFrame_GetCode(raw)));
    auto file = code.attr("co_filename").cast<std::string>();
    if (!skip(file)) return Place{std::move(file), PyFrame_GetLineNumber(raw)};
    frame = py::reinterpret_steal<py::object>(reinterpret_cast<PyObject*>(PyFrame_GetBack(raw)));
  }
  return {};
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
  if (auto place = innermost(&is_ours)) {
    origin.file = std::move(place->file);
    origin.line = place->line;
  }
  return origin;
}

std::string python_call_site() {
  auto place = innermost(&is_ours);
  // A program given with -c, or typed in, has no file.
  if (!place) place = innermost(&in_packages);
  return place ? fmt::format("{}:{}", place->file, place->line) : "unknown:0";
}

}  // namespace tessera
