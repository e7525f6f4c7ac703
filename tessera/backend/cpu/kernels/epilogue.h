// What is done with the result of a contraction while it still lies in the cache. A kernel calls
// its epilogue once for every box of the result, from the thread that finished it, and boxes
// together are the whole result. Boxes are counted in the physical dimensions of the result, and
// lie in it, or dense in a room of the kernel's own.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace tessera::cpu {

constexpr size_t most_dimensions = 8;

struct Box {
  std::array<int64_t, most_dimensions> begin{}, end{};
  const float* room = nullptr;  // with all of it; null where it lies in the result
};

class Epilogue {
 public:
  Epilogue() = default;
  template <typename Work>
  explicit Epilogue(const Work& work)
      : context_(&work), run_([](const void* context, const Box& box) {
          (*static_cast<const Work*>(context))(box);
        }) {}

  explicit operator bool() const { return run_ != nullptr; }
  void operator()(const Box& box) const { run_(context_, box); }

 private:
  const void* context_ = nullptr;
  void (*run_)(const void*, const Box&) = nullptr;
};

}  // namespace tessera::cpu
