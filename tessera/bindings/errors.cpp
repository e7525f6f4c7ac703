#include <torch/csrc/Exceptions.h>

#include "tessera/base/error.h"
#include "tessera/base/error_log.h"
#include "tessera/bindings/bindings.h"

namespace py = pybind11;

namespace tessera {
namespace {

struct ErrorClasses {
  py::object error, recoverable, unrecoverable;
};

// Never destroyed: exceptions may be translated while the interpreter shuts down.
ErrorClasses& classes() {
  static auto* instance = new ErrorClasses;
  return *instance;
}

const py::object& class_of(ErrorKind kind) {
  if (kind == ErrorKind::recoverable) return classes().recoverable;
  if (kind == ErrorKind::unrecoverable) return classes().unrecoverable;
  return classes().error;
}

// The line to look at first: that of forward, or else the one that called us.
std::string source_of(const SourcePlace& place) {
  return place.file.empty() ? python_call_site() : fmt::format("{}:{}", place.file, place.line);
}

// One of poptorch's own exceptions.
void raise(const py::object& type, const std::string& message, const char* kind,
           const std::vector<std::string>& context, const SourcePlace& place) {
  std::string location = context.empty() ? "[0] called at " + python_call_site() : "";
  for (size_t i = 0; i < context.size(); ++i) {
    location += fmt::format("{}[{}] {}", i > 0 ? "\n" : "", i, context[i]);
  }
  const py::object exception = type(shortened_error(message), kind, location, source_of(place));
  PyErr_SetObject(type.ptr(), exception.ptr());
}

void raise(const Error& error) {
  switch (error.kind()) {
    case ErrorKind::assertion:
      return PyErr_SetString(PyExc_AssertionError, error.what());
    case ErrorKind::value:
      return PyErr_SetString(PyExc_ValueError, error.what());
    case ErrorKind::type:
      return PyErr_SetString(PyExc_TypeError, error.what());
    case ErrorKind::attribute:
      return PyErr_SetString(PyExc_AttributeError, error.what());
    case ErrorKind::runtime:
      return PyErr_SetString(PyExc_RuntimeError, error.what());
    case ErrorKind::user:
    case ErrorKind::recoverable:
    case ErrorKind::unrecoverable:
      return raise(class_of(error.kind()), error.message(), "poptorch_cpp_error", error.context(),
                   error.place());
  }
}

}  // namespace

void bind_errors(py::module_& module) {
  const py::module_ errors = py::module_::import("poptorch._errors");
  for (const char* name :
       {"Error", "RecoverableError", "UnrecoverableError", "TestErrorType", "_throwTestError"}) {
    module.attr(name) = errors.attr(name);
  }
  classes() = {module.attr("Error"), module.attr("RecoverableError"),
               module.attr("UnrecoverableError")};
  py::register_exception_translator([](std::exception_ptr pointer) {
    try {
      if (pointer) std::rethrow_exception(pointer);
    } catch (const Error& error) {
      raise(error);
    } catch (const InternalError& error) {
      raise(classes().error, error.what(), "popart_internal_exception", {}, {});
    } catch (python_error& error) {
      error.restore();  // the user's own, from a hook that autograd called
    }
  });
}

}  // namespace tessera
