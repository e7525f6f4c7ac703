// Nothing is allocated while a step runs. Counted with an operator new of our own, on all threads;
// the sanitizers have theirs.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>
#include <vector>

#include "tessera/ops/builder.h"
#include "tessera/runtime/compile.h"
#include "tessera/runtime/session.h"

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

namespace {

std::atomic<int64_t> allocations{0};

void* counted(size_t size, size_t alignment) {
  ++allocations;
  const size_t rounded = (size + alignment - 1) / alignment * alignment;
  if (void* memory = std::aligned_alloc(alignment, rounded)) return memory;
  throw std::bad_alloc();
}

}  // namespace

void* operator new(size_t size) { return counted(size, alignof(std::max_align_t)); }
void* operator new(size_t size, std::align_val_t alignment) {
  return counted(size, static_cast<size_t>(alignment));
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, size_t, std::align_val_t) noexcept { std::free(memory); }

namespace tessera {
namespace {

constexpr int64_t width = 300;

// Only operators whose kernels are prepared: reference kernels work out strides in every call.
Graph step() {
  Graph graph;
  Builder build(graph);
  const ValueId x = graph.add_input(InputKind::data, "x", {DType::f32, {width, width}});
  const ValueId w = graph.add_state(StateKind::parameter, "w", {DType::f32, {width, width}});
  const ValueId y = build.add("matmul", {x, w});
  graph.add_output("y", y);
  build.set_place({}, Phase::update);
  graph.states()[0].after_update = build.add("matmul", {x, y});
  return graph;
}

TEST(Session, AllocatesNothingInAStep) {
  for (const int threads : {1, 2}) {
    Session session(compile(step()), threads);
    if (session.executable().plan().calls[0].kernel == "reference") {
      GTEST_SKIP() << "the reference kernel of matmul allocates";
    }
    const std::vector<float> x(static_cast<size_t>(2 * width * width), 1e-3F);
    std::vector<float> y(x.size());
    RunRequest request;
    request.device_iterations = 2;
    request.inputs = {reinterpret_cast<const std::byte*>(x.data())};
    request.outputs = {{reinterpret_cast<std::byte*>(y.data()), OutputMode::all, 1}};
    request.poll = [] {};
    for (int i = 0; i < 20; ++i) session.run(request);  // threads get what they keep
    const int64_t before = allocations;
    for (int i = 0; i < 20; ++i) session.run(request);
    EXPECT_EQ(allocations - before, 0) << threads << " threads";
  }
}

}  // namespace
}  // namespace tessera

#endif
