// Where versions of PyTorch differ, each difference behind one name. What is written here was tried
// with 1.13, and read from the headers of 2.6; nowhere else is a version asked for, but in the rows
// of aten_facts.cpp and pytorch_words.cpp.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/DispatchKey.h>
#include <c10/core/Storage.h>
#include <c10/util/Optional.h>
#include <c10/util/string_view.h>
#include <torch/version.h>

#include <optional>
#include <string_view>

namespace tessera::compat {

inline constexpr int torch_version = 100 * TORCH_VERSION_MAJOR + TORCH_VERSION_MINOR;

// What the signatures of operators have for "?" and "str".
#if TORCH_VERSION_MAJOR >= 2
template <typename T>
using optional = std::optional<T>;
using std::nullopt;
#else
template <typename T>
using optional = c10::optional<T>;
using c10::nullopt;
#endif

#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 7)
using string_view = std::string_view;
#else
using string_view = c10::string_view;
#endif

template <typename T>
optional<T> optional_of(const std::optional<T>& value) {
  return value ? optional<T>(*value) : optional<T>();
}

// PyTorch has no operators of its own behind these keys. Calls arrive at the first after autograd
// has taken composites apart, at the second before.
inline constexpr auto below_autograd = c10::DispatchKey::Fake;
inline constexpr auto above_autograd = c10::DispatchKey::DeferredInit;

// The storage's memory to write to; null where it has none. 1.13 makes no difference.
inline void* writable_data(const c10::Storage& storage) {
#if TORCH_VERSION_MAJOR >= 2
  return storage.mutable_data();
#else
  return storage.data();
#endif
}

// An allocator of the CPU's memory: give `take` and raw_deleter().
class CpuAllocator : public c10::Allocator {
 public:
  virtual c10::DataPtr take(size_t bytes) const = 0;

#if TORCH_VERSION_MAJOR >= 2
  c10::DataPtr allocate(size_t bytes) override { return take(bytes); }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }
#else
  c10::DataPtr allocate(size_t bytes) const override { return take(bytes); }
#endif
};

// Whether TorchScript's interpreter lets an exception pass as it is. Otherwise it throws another
// one of a type of its own, with the place in the script added to the message.
void let_exceptions_pass_torchscript(bool pass);

}  // namespace tessera::compat
