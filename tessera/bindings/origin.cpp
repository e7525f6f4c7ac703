#include <fmt/format.h>

#include <functional>
#include <optional>
#include <string>
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
std::optional<Place> innermost(const std::function<bool(const std::string& file)>& skip) {
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

bool holds_one_of(const std::string& file, const std::vector<std::string>& parts) {
  for (const std::string& part : parts) {
    if (file.find(part) != std::string::npos) return true;
  }
  return false;
}

}  // namespace

void push_module(std::string path) { module_stack().push_back(std::move(path)); }

void pop_module() {
  if (!module_stack().empty()) module_stack().pop_back();
}

void clear_modules() { module_stack().clear(); }

Origin python_origin(const std::vector<std::string>& excludes) {
  const py::gil_scoped_acquire gil;
  Origin origin;
  if (!module_stack().empty()) origin.module = module_stack().back();
  const auto skipped = [&](const std::string& file) {
    return is_ours(file) || holds_one_of(file, excludes);
  };
  if (auto place = innermost(skipped)) {
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
