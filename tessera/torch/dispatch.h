// Sends every ATen call of this thread to a recorder.
//
// Two spare dispatch keys of PyTorch are used. Fake lies below autograd: all calls, forward and
// backward, arrive there once, after composites were taken apart. DeferredInit lies above autograd:
// there losses, and operators whose parts would look at values, are seen whole.
#pragma once

#include <c10/core/impl/LocalDispatchKeySet.h>

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

// The recorder at work; null where nothing is recorded.
Recorder* current_recorder();

}  // namespace tessera
