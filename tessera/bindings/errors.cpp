#include <torch/csrc/Exceptions.h>

#include "tessera/base/error.h"
#include "tessera/base/error_log.h"
#include "tessera/bindings/bindings.h"

namespace py = pybind11;

namespace tessera {
namespace {

struct ErrorClasses {
  py::object error, recoverable, unrecoverable;
  py::object carrier;  // of an exception of ours through PyTorch
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

constexpr const char* carried = "_carried";  // attribute of a carrier

std::string text_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& known) {
    return known.what();
  }
}

std::exception_ptr carried_by(PyObject* value) {
  if (!value || PyObject_IsInstance(value, classes().carrier.ptr()) != 1) return nullptr;
  const py::capsule capsule = py::handle(value).attr(carried);
  return *capsule.get_pointer<std::exception_ptr>();
}

// Python's own error that is set, which stays set where it carries nothing.
std::exception_ptr taken_from_python() {
  PyObject *type = nullptr, *value = nullptr, *traceback = nullptr;
  PyErr_Fetch(&type, &value, &traceback);
  const std::exception_ptr found = carried_by(value);
  PyErr_Restore(type, value, traceback);
  if (found) PyErr_Clear();
  return found;
}

}  // namespace

void throw_as_python_error(const std::exception_ptr& error) {
  const py::gil_scoped_acquire gil;
  const py::object carrier = classes().carrier(text_of(error));
  carrier.attr(carried) = py::capsule(new std::exception_ptr(error), [](void* pointer) {
    delete static_cast<std::exception_ptr*>(pointer);
  });
  PyErr_SetObject(classes().carrier.ptr(), carrier.ptr());
  python_error thrown;
  thrown.persist();  // it may have to go to another thread
  throw thrown;
}

std::exception_ptr carried_by_python_error(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const py::error_already_set& python) {
    const py::gil_scoped_acquire gil;
    return carried_by(python.value().ptr());
  } catch (const python_error& python) {
    const py::gil_scoped_acquire gil;
    // Autograd's engine has handed it to Python already; PyTorch 1.13 leaves no copy.
    const std::exception_ptr taken = taken_from_python();
    return taken || !python.value ? taken : carried_by(python.value);
  } catch (...) {
    return nullptr;
  }
}

void raise_pending_signal() {
  const py::gil_scoped_acquire gil;
  if (PyErr_CheckSignals() != 0) throw py::error_already_set();
}

void bind_errors(py::module_& module) {
  const py::module_ errors = py::module_::import("poptorch._errors");
  for (const char* name :
       {"Error", "RecoverableError", "UnrecoverableError", "TestErrorType", "_throwTestError"}) {
    module.attr(name) = errors.attr(name);
  }
  classes() = {module.attr("Error"), module.attr("RecoverableError"),
               module.attr("UnrecoverableError"), errors.attr("_ErrorInForward")};
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
