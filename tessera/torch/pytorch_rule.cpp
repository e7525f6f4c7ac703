#include "tessera/torch/pytorch_rule.h"

#include <c10/util/Exception.h>

#include "tessera/base/error.h"
#include "tessera/torch/host_call.h"

namespace tessera {

void check_legal(const AtenCall& call, const std::function<void()>& forget_error) {
  try {
    trial_run(call, forget_error);
  } catch (const c10::Error& error) {
    forget_error();
    fail(ErrorKind::user, "{}", error.what_without_backtrace());
  }
}

void check_implemented(const AtenCall& call, const std::function<void()>& forget_error) {
  try {
    trial_run(call, forget_error);
  } catch (const c10::Error& error) {
    forget_error();
    const std::string_view what = error.what_without_backtrace();
    // Other words may be about the values, which were made up.
    for (const char* types : {"not implemented for", "Found dtype", "without overflow"}) {
      check(what.find(types) == std::string_view::npos, "{}", what);
    }
  } catch (const std::exception&) {
    forget_error();
  }
}

std::optional<torch::jit::Stack> ruled_results(const AtenCall& call,
                                               const std::function<void()>& forget_error) {
  try {
    return shapes_only(call);
  } catch (const c10::NotImplementedError&) {
    forget_error();
    return std::nullopt;
  } catch (const std::exception&) {
    forget_error();
  }
  // Rules for tensors without memory are not always the kernel's own.
  check_legal(call, forget_error);
  return std::nullopt;
}

}  // namespace tessera
