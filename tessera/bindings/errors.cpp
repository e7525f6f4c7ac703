#include "tessera/base/error.h"
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
      break;
  }
  const py::object& type = error.kind() == ErrorKind::recoverable     ? classes().recoverable
                           : error.kind() == ErrorKind::unrecoverable ? classes().unrecoverable
                                                                      : classes().error;
  std::string location;
  for (size_t i = 0; i < error.context().size(); ++i) {
    location += fmt::format("[{}] {}\n", i, error.context()[i]);
  }
  py::object exception = type(error.what());
  exception.attr("message") = error.message();
  exception.attr("type") = "poptorch_cpp_error";
  exception.attr("location") = location;
  PyErr_SetObject(type.ptr(), exception.ptr());
}

}  // namespace

void bind_errors(py::module_& module) {
  const auto make_class = [&](const char* name, const py::object& base) {
    py::object type = py::reinterpret_steal<py::object>(
        PyErr_NewException(fmt::format("poptorch.{}", name).c_str(), base.ptr(), nullptr));
    module.attr(name) = type;
    return type;
  };
  classes().error = make_class("Error", py::reinterpret_borrow<py::object>(PyExc_Exception));
  classes().recoverable = make_class("RecoverableError", classes().error);
  classes().unrecoverable = make_class("UnrecoverableError", classes().error);
  py::register_exception_translator([](std::exception_ptr pointer) {
    try {
      if (pointer) std::rethrow_exception(pointer);
    } catch (const Error& error) {
      raise(error);
    }
  });
}

}  // namespace tessera
