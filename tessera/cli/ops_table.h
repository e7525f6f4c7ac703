// The operator table as text: the documented list of operators is made from it, never kept by hand.
#pragma once

#include <string>
#include <string_view>

namespace tessera {

std::string ops_as_text();      // aligned columns
std::string ops_as_markdown();  // the same for documents

// One operator in detail, by our name or by ATen's; Error where there is none.
std::string describe_op(std::string_view name);

}  // namespace tessera
