#include "tessera/torch/cpp_origin.h"

#include <backtrace.h>

#include <string_view>

namespace tessera {
namespace {

void ignore_error(void*, const char*, int) {}

backtrace_state* symbols() {
  static backtrace_state* state =
      backtrace_create_state(nullptr, /*threaded=*/1, ignore_error, nullptr);
  return state;
}

// Code that runs between the user's forward and us.
bool is_library_code(std::string_view file) {
  for (const std::string_view part : {"/include/torch/", "/include/ATen/", "/include/c10/", "/c++/",
                                      "/tessera/torch/", "/tessera/api/", "/include/tessera/"}) {
    if (file.find(part) != std::string_view::npos) return true;
  }
  return false;
}

int take_frame(void* context, uintptr_t, const char* file, int line, const char*) {
  // The C library's own files are named from its build folder.
  if (!file || file[0] != '/' || is_library_code(file)) return 0;
  auto* origin = static_cast<Origin*>(context);
  origin->file = file;
  origin->line = line;
  return 1;
}

}  // namespace

Origin cpp_origin() {
  Origin origin;
  if (symbols()) backtrace_full(symbols(), /*skip=*/1, take_frame, ignore_error, &origin);
  return origin;
}

}  // namespace tessera
