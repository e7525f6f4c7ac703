// Shapes, element types and values of options in the words of Python, for messages.
#pragma once

#include <c10/core/ScalarType.h>
#include <c10/util/ArrayRef.h>

#include <string>

#include "tessera/api/options/option_value.h"

namespace tessera {

std::string spoken_sizes(c10::IntArrayRef sizes);  // "[2, 3]"
std::string spoken_type(c10::ScalarType type);     // "torch.float32"

// A value of an option by its type: "a str", "None", "a numpy.ndarray".
std::string spoken_type(const OptionValue& value);
// With the value where that is short and says more than its type: "a str (half)".
std::string spoken_value(const OptionValue& value);

}  // namespace tessera
