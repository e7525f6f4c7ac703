// What the entries over oneDNN share. Only files of this folder include it.
//
// A primitive is made for one thread and run on pieces of the work by our own pool, so that results
// do not depend on the number of threads. oneDNN takes its thread count from OpenMP's setting of
// the calling thread, both when a primitive is made and when it runs: OneOmpThread holds it at one.
#pragma once

#include <omp.h>

#include <cstddef>
#include <cstdint>
#include <dnnl.hpp>
#include <optional>
#include <unordered_map>

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
dnnl::memory onednn_memory(const dnnl::memory::desc& desc, const std::byte* data);
int64_t aligned_bytes(const dnnl::memory::desc& desc);

// A primitive and the scratch memory it wants.
class OnednnPrimitive {
 public:
  template <typename Description>
  explicit OnednnPrimitive(const Description& description)
      : primitive_(description.get()), scratch_(description.scratchpad_desc()) {}

  int64_t scratch_bytes() const { return aligned_bytes(scratch_); }
  void run(std::unordered_map<int, dnnl::memory> arguments, std::byte* scratch) const;

 private:
  dnnl::primitive primitive_;
  dnnl::memory::desc scratch_;
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
  // Converts between the two; nothing where both are the same.
  void convert(std::byte* plain, std::byte* room) const;

 private:
  dnnl::memory::desc plain_, wanted_;
  Direction direction_;
  std::optional<OnednnPrimitive> reorder_;
};

}  // namespace tessera::cpu
