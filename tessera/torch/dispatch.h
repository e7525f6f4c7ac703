// Sends every ATen call of this thread to a recorder.
//
// Two spare dispatch keys of PyTorch are used. Fake lies below autograd: all calls, forward and
// backward, arrive there once, after composites were taken apart. DeferredInit lies above autograd:
// there losses, and operators whose parts would look at values, are seen whole.
#pragma once

#include <c10/core/impl/LocalDispatchKeySet.h>

#include <exception>
#include <type_traits>

#include "tessera/base/error.h"
#include "tessera/torch/recorder.h"

namespace tessera {

// While it lives, calls of this thread (and of autograd's threads working for it) are recorded.
// One at a time in a process.
class Recording {
 public:
  explicit Recording(Recorder& recorder);
  ~Recording();
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;

 private:
  c10::impl::IncludeDispatchKeyGuard include_;
};

// While it lives, calls of this thread run as usual although a recording is on.
class NotRecorded {
 public:
  NotRecorded();

 private:
  c10::impl::ExcludeDispatchKeyGuard exclude_;
};

// For an exception of ours that is about to leave for PyTorch and the model's code, which turn what
// they do not know into exceptions of their own: throws it so that capture() knows it again.
[[noreturn]] void throw_through_pytorch(std::exception_ptr error);

// What `work` returns; what it throws of ours is thrown through PyTorch.
template <typename Work>
std::invoke_result_t<Work> guard_errors(const Work& work) {
  try {
    return work();
  } catch (const Error&) {
    throw_through_pytorch(std::current_exception());
  } catch (const InternalError&) {
    throw_through_pytorch(std::current_exception());
  }
}

// The recorder at work; null where nothing is recorded.
Recorder* current_recorder();

}  // namespace tessera
