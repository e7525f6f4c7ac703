// Values of options between Python and C++.
#pragma once

#include <pybind11/pybind11.h>

#include "tessera/api/options/option_value.h"

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

// The class of an object as messages name it: "str", "numpy.ndarray".
std::string class_name(pybind11::handle object);

}  // namespace tessera
