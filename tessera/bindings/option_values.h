// Values of options between Python and C++.
#pragma once

#include <pybind11/pybind11.h>

#include "tessera/api/options/option_enums.h"
#include "tessera/api/options/option_value.h"
#include "tessera/api/spoken.h"
#include "tessera/base/error.h"

namespace tessera {

// Members of poptorch.enums stay what they are, those of other enumerations become their value.
// What no option can be is kept as its type's name.
OptionValue value_from(pybind11::handle object);

pybind11::object value_to(const OptionValue& value);
pybind11::dict dict_to(const OptionDict& dict);
OptionDict dict_from(const pybind11::dict& dict);

// For arguments that must be of exactly this type: else an AssertionError that names the setter.
bool flag_from(pybind11::handle object, const char* setter);
int64_t integer_from(pybind11::handle object, const char* setter);
std::string text_from(pybind11::handle object, const char* setter);

// A member of that enumeration: else an AssertionError that names the setter.
template <typename Enum>
Enum choice_from(pybind11::handle object, const char* setter) {
  const OptionValue value = value_from(object);
  const bool right = value.is<OptionEnum>() && value.as<OptionEnum>().type == enum_name<Enum>;
  check(right, ErrorKind::assertion, "{} takes a member of poptorch.{}, not {}", setter,
        enum_name<Enum>, spoken_type(value));
  return static_cast<Enum>(value.as<OptionEnum>().number);
}

// The class of an object as messages name it: "str", "numpy.ndarray".
std::string class_name(pybind11::handle object);

}  // namespace tessera
