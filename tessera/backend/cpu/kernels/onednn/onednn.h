// What the entries over oneDNN share. Only files of this folder include it.
//
// A primitive is made for one thread and run on pieces of the work by our own pool, so that results
// do not depend on the number of threads. oneDNN takes its thread count from OpenMP's setting of
// the calling thread, both when a primitive is made and when it runs: OneOmpThread holds it at one.
#pragma once

#include <omp.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <dnnl.hpp>
#include <initializer_list>
#include <optional>

namespace tessera::cpu {

class OneOmpThread {
 public:
  OneOmpThread() : before_(omp_get_max_threads()) {
    if (before_ != 1) omp_set_num_threads(1);
  }
  ~OneOmpThread() {
    // The calling thread is the user's: whatever else uses OpenMP there must not notice.
    if (before_ != 1) omp_set_num_threads(before_);
  }
  OneOmpThread(const OneOmpThread&) = delete;
  OneOmpThread& operator=(const OneOmpThread&) = delete;

 private:
  int before_;
};

const dnnl::engine& onednn_engine();
dnnl::primitive_attr onednn_attributes();  // scratch memory is ours
int64_t aligned_bytes(const dnnl::memory::desc& desc);

// What describes a primitive, from the arguments that versions 2 and 3 have in common; in version 2
// they first make a description of the operation.
template <typename Primitive, typename... Arguments>
typename Primitive::primitive_desc onednn_description(const Arguments&... arguments) {
#if DNNL_VERSION_MAJOR >= 3
  return {onednn_engine(), arguments..., onednn_attributes()};
#else
  return {typename Primitive::desc(arguments...), onednn_attributes(), onednn_engine()};
#endif
}

// The same for the gradient of what `forward` describes.
template <typename Primitive, typename Forward, typename... Arguments>
typename Primitive::primitive_desc onednn_description_of_backward(const Forward& forward,
                                                                  const Arguments&... arguments) {
#if DNNL_VERSION_MAJOR >= 3
  return {onednn_engine(), arguments..., forward, onednn_attributes()};
#else
  return {typename Primitive::desc(arguments...), onednn_attributes(), onednn_engine(), forward};
#endif
}

// A primitive and the scratch memory it wants.
class OnednnPrimitive {
 public:
  template <typename Description>
  explicit OnednnPrimitive(const Description& description)
      : primitive_(description.get()), scratch_(description.scratchpad_desc()) {}

  int64_t scratch_bytes() const { return aligned_bytes(scratch_); }

 private:
  friend class OnednnRun;

  dnnl::primitive primitive_;
  dnnl::memory::desc scratch_;
};

// What it takes to run a primitive again and again: its arguments as objects of oneDNN, made once,
// and told before every run where they lie. For one thread at a time; must not outlive the
// primitive.
class OnednnRun {
 public:
  struct Argument {
    int name;  // DNNL_ARG_...
    const dnnl::memory::desc& desc;
  };

  OnednnRun(const OnednnPrimitive& primitive, std::initializer_list<Argument> arguments);

  // `data` in the order of the arguments.
  void operator()(std::initializer_list<const std::byte*> data, std::byte* scratch) const;

 private:
  static constexpr size_t most_arguments = 5;

  const OnednnPrimitive& primitive_;
  dnnl::stream stream_;
  size_t count_;  // with the scratch memory
  std::array<dnnl::memory, most_arguments> memory_;
  std::array<dnnl_exec_arg_t, most_arguments> arguments_;
};

// A tensor in the layout it comes in and in the one a primitive wants.
class OnednnLayout {
 public:
  enum class Direction { to_primitive, from_primitive };

  OnednnLayout(dnnl::memory::desc plain, dnnl::memory::desc wanted, Direction direction);

  const dnnl::memory::desc& wanted() const { return wanted_; }
  // Room for the tensor in the wanted layout and for the conversion; 0 where both are the same.
  int64_t bytes() const;
  // Where the primitive finds (or leaves) the tensor.
  std::byte* data(std::byte* plain, std::byte* room) const { return reorder_ ? room : plain; }

 private:
  friend class OnednnConversion;

  dnnl::memory::desc plain_, wanted_;
  Direction direction_;
  std::optional<OnednnPrimitive> reorder_;
};

// Converts a tensor between the two, as an OnednnRun runs a primitive; nothing where both are the
// same.
class OnednnConversion {
 public:
  explicit OnednnConversion(const OnednnLayout& layout);

  void operator()(std::byte* plain, std::byte* room) const;

 private:
  const OnednnLayout& layout_;
  std::optional<OnednnRun> run_;
};

}  // namespace tessera::cpu
