// What PyTorch tells in words alone: facts for which it has neither a type of exception nor a
// function to ask. Every text of PyTorch's that decides anything stands in one table here, with the
// versions that say it.
#pragma once

#include <string_view>

namespace tessera {

// Code in C++ went for the elements of a tensor that has no memory.
bool says_no_memory(std::string_view message);

// A kernel refused a call because of its element types, whatever the values are.
bool says_wrong_types(std::string_view message);

// From the text of OperatorHandle::dumpComputedTable(): where the rule for tensors without memory
// was registered; empty where there is none.
std::string_view place_of_meta_rule(std::string_view computed_table);
// Whether that place is the code that kernels begin with, written from their declarations.
bool is_kernels_own_rule(std::string_view place);
// Whether it is only what says that there is none.
bool is_rule_that_throws(std::string_view place);
// Whether it is code in C++ at all.
bool is_rule_in_cpp(std::string_view place);

}  // namespace tessera
