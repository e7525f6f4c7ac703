// What capture must know of PyTorch's operators and no schema tells: one table, one row for each
// name. What a row does not mention is as the schema and its tags say.
#pragma once

#include <span>
#include <string_view>

namespace tessera {

// Versions of PyTorch, as 100 * major + minor; the last one included.
struct TorchVersions {
  int first = 0;
  int last = 99999;

  constexpr bool include(int version) const { return first <= version && version <= last; }
};

// Whether what comes out, or its size, is only known when the program runs.
enum class ValueDependence {
  as_tagged,  // where PyTorch's tags say so
  always,     // although no tag says so
  for_masks   // only where an index is a mask, although tagged
};

// Operators that give a tensor the elements of another or of a number: bookkeeping, no node.
enum class Movement { none, clone, copy_into, fill };

struct AtenFacts {
  std::string_view name;  // "index.Tensor": without "aten::", with the overload
  TorchVersions versions = {};

  bool aliases = false;           // the result is a view, which the schema does not declare
  bool reads_sizes_only = false;  // no values of its tensors: what it makes is known at once
  bool leaves_unset = false;      // what it makes holds what was in that memory before
  bool lacks_meta_rule = false;   // what PyTorch's C++ has in place of one throws, in milliseconds
  Movement movement = Movement::none;
  // Arguments, separated by ", ", that it changes in training and the schema does not mark.
  std::string_view secret_writes = {};
  // "grad=grad_output": an argument as the operators' table has it, and its later name.
  std::string_view renamed = {};

  ValueDependence values = ValueDependence::as_tagged;
  std::string_view asked_as = {};    // what users write who ask for its value
  std::string_view refused_as = {};  // the operator named when it is refused; its own where empty
  bool counts_values = false;        // its size is how many different values there are

  // Of a layer, arguments that are brought to the type of its input, separated by ", ".
  std::string_view weights = {};
  bool promotes_inside = false;  // instead: computed in the common type, the result in the input's

  bool loss = false;          // its result is a loss, to be minimised where it comes last
  bool caught_whole = false;  // seen above autograd, where we have another form of it
};

// In no particular order.
std::span<const AtenFacts> aten_facts();

// The row of an overload, with "aten::" or without; one that says nothing where there is none.
const AtenFacts& facts_of(std::string_view overload);

// Whether `name` stands in a list of names, separated by ", ", as rows have them.
bool is_named(std::string_view names, std::string_view name);

// The later name of an argument; empty where it has none.
std::string_view later_name(const AtenFacts& facts, std::string_view argument);

// By PyTorch's convention for the names of operators that autograd calls.
bool is_gradient(std::string_view name);

// Functions of torch.nn.functional that put losses together in Python: what they return is the
// loss, not a part of it.
std::span<const std::string_view> losses_in_python();

}  // namespace tessera
