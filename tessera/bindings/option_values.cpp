#include "tessera/bindings/option_values.h"

#include "tessera/api/spoken.h"
#include "tessera/base/error.h"
#include "tessera/bindings/bindings.h"

namespace py = pybind11;

namespace tessera {

std::string class_name(py::handle object) {
  const py::handle type = py::type::handle_of(object);
  const auto name = type.attr("__qualname__").cast<std::string>();
  const auto module = type.attr("__module__").cast<std::string>();
  return module == "builtins" ? name : module + "." + name;
}

namespace {

bool is_flag(py::handle object) {
  return PyBool_Check(object.ptr()) || class_name(object) == "numpy.bool_";
}

bool is_enum(py::handle object) {
  static const auto* base =
      new py::object(py::module_::import("enum").attr("Enum"));  // outlives the interpreter
  return py::isinstance(object, *base);
}

// numpy's numbers are of these kinds too; tensors are not.
bool is_number(py::handle object, const char* kind) {
  static const auto* numbers = new py::module_(py::module_::import("numbers"));
  return py::isinstance(object, numbers->attr(kind));
}

OptionValue integer_value(py::handle object) {
  const auto integer = py::reinterpret_steal<py::object>(PyNumber_Index(object.ptr()));
  if (!integer) throw py::error_already_set();
  int overflow = 0;
  const long long number = PyLong_AsLongLongAndOverflow(integer.ptr(), &overflow);
  if (overflow != 0) return OptionUnknown{"an int beyond 64 bits"};
  return int64_t{number};
}

OptionValue text_value(py::handle object) {
  Py_ssize_t size = 0;
  const char* text = PyUnicode_AsUTF8AndSize(object.ptr(), &size);
  if (text) return std::string(text, static_cast<size_t>(size));
  PyErr_Clear();
  return OptionUnknown{"a str that is not valid Unicode"};
}

// Lists that hold themselves have no end.
struct Nesting {
  Nesting() {
    if (Py_EnterRecursiveCall(" while reading the value of an option")) {
      throw py::error_already_set();
    }
  }
  ~Nesting() { Py_LeaveRecursiveCall(); }
};

template <typename Container>
std::vector<OptionValue> items_of(const Container& container) {
  std::vector<OptionValue> items;
  for (const auto& item : container) items.push_back(value_from(item));
  return items;
}

OptionValue enum_value(py::handle object) {
  const py::handle type = py::type::handle_of(object);
  const py::object value = object.attr("value");
  if (type.attr("__module__").cast<std::string>() == "poptorch.enums" &&
      PyLong_Check(value.ptr())) {
    return OptionEnum{type.attr("__name__").cast<std::string>(), value.cast<int64_t>()};
  }
  return value_from(value);
}

}  // namespace

OptionValue value_from(py::handle object) {
  const Nesting nesting;
  PyObject* raw = object.ptr();
  if (object.is_none()) return {};
  if (is_flag(object)) return PyObject_IsTrue(raw) != 0;
  if (is_enum(object)) return enum_value(object);
  if (is_number(object, "Integral")) return integer_value(object);
  if (is_number(object, "Real")) return PyFloat_AsDouble(raw);
  if (PyUnicode_Check(raw)) return text_value(object);
  if (PyList_Check(raw) || PyTuple_Check(raw)) {
    return OptionList{items_of(py::reinterpret_borrow<py::sequence>(object))};
  }
  if (PyAnySet_Check(raw)) return OptionSet{items_of(py::reinterpret_borrow<py::object>(object))};
  if (PyDict_Check(raw)) return dict_from(py::reinterpret_borrow<py::dict>(object));
  if (py::isinstance<OptionUnknown>(object)) return object.cast<OptionUnknown>();
  return OptionUnknown{class_name(object)};
}

OptionDict dict_from(const py::dict& dict) {
  OptionDict converted;
  for (const auto& [key, value] : dict) converted.set(value_from(key), value_from(value));
  return converted;
}

py::dict dict_to(const OptionDict& dict) {
  py::dict converted;
  for (const auto& [key, value] : dict.entries) converted[value_to(key)] = value_to(value);
  return converted;
}

py::object value_to(const OptionValue& value) {
  if (value.is<bool>()) return py::cast(value.as<bool>());
  if (value.is<int64_t>()) return py::cast(value.as<int64_t>());
  if (value.is<double>()) return py::cast(value.as<double>());
  if (value.is<std::string>()) return py::cast(value.as<std::string>());
  if (value.is<OptionEnum>()) {
    const auto& member = value.as<OptionEnum>();
    return py::module_::import("poptorch.enums").attr(member.type.c_str())(member.number);
  }
  if (value.is<OptionList>()) {
    py::list list;
    for (const OptionValue& item : value.as<OptionList>().items) list.append(value_to(item));
    return list;
  }
  if (value.is<OptionSet>()) {
    py::set set;
    for (const OptionValue& item : value.as<OptionSet>().items) set.add(value_to(item));
    return set;
  }
  if (value.is<OptionDict>()) return dict_to(value.as<OptionDict>());
  if (value.is<OptionUnknown>()) return py::cast(value.as<OptionUnknown>());
  return py::none();
}

bool flag_from(py::handle object, const char* setter) {
  const OptionValue value = value_from(object);
  check(value.is<bool>(), ErrorKind::assertion, "{} takes a bool, not {}", setter,
        spoken_type(value));
  return value.as<bool>();
}

int64_t integer_from(py::handle object, const char* setter) {
  const OptionValue value = value_from(object);
  check(value.is<int64_t>(), ErrorKind::assertion, "{} takes an int, not {}", setter,
        spoken_type(value));
  return value.as<int64_t>();
}

std::string text_from(py::handle object, const char* setter) {
  const OptionValue value = value_from(object);
  check(value.is<std::string>(), ErrorKind::assertion, "{} takes a str, not {}", setter,
        spoken_type(value));
  return value.as<std::string>();
}

}  // namespace tessera
