// A Plan is the program as calls and offsets: which kernel runs on which piece of memory, in which
// order. It is made once, for one Target, and never changed; any number of engines may run it
// at the same time, each on memory of its own.
//
// The first `update_begin` calls run for every micro-batch, the others once per weight update.
// Outputs can be read between the two. `load` runs once before everything else: it fills the
// constants.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/backend/cpu/kernels/prepared_kernel.h"
#include "tessera/backend/cpu/layout.h"
#include "tessera/backend/cpu/target.h"
#include "tessera/base/divided_up.h"
#include "tessera/base/geometry.h"
#include "tessera/base/ids.h"
#include "tessera/ir/attributes.h"
#include "tessera/ir/graph.h"

namespace tessera::cpu {

inline constexpr int64_t memory_alignment = 64;

// Up to the next multiple of it.
constexpr int64_t aligned(int64_t bytes) { return rounded_up(bytes, memory_alignment); }

// Which of an engine's memories a buffer lies in.
enum class Space : uint8_t {
  arena,           // shared by all values of a step, each for its lifetime
  state,           // outlives steps
  data,            // the user's, read where it lies; another place for every micro-batch
  hyperparameter,  // changed between calls
  constant         // filled at load
};
std::string_view name_of(Space space);

struct Buffer {
  Space space = Space::arena;
  int64_t index = 0;   // which state, input, hyper-parameter or constant, in the graph's order
  int64_t offset = 0;  // in its memory; data inputs have a memory each
  int64_t bytes = 0;
  int64_t first_call = 0, last_call = 0;  // arena: the calls between which it must be kept
};

// A tensor in a buffer; strides in elements. Its geometry names the elements of the value in the
// physical order of the layout; where that has more of them, the value is broadcast.
struct Place {
  BufferId buffer;  // not valid(): an operand that was left out
  DType dtype = DType::f32;
  Geometry geometry;
  ValueId value;  // of the plan's graph
  Layout layout = {};
};

inline int64_t byte_offset(const Place& place) {
  return place.geometry.offset * static_cast<int64_t>(size_of(place.dtype));
}

struct Call {
  NodeId node;         // of the plan's graph; not valid(): a move that lowering added
  std::string op;      // the operator's name; "copy" or "convert" for moves
  std::string kernel;  // the entry that was chosen for it
  std::string origin;  // where the user wrote it, for messages; may be empty
  bool host = false;   // PyTorch's own kernel; `kernel` is its name
  std::shared_ptr<const PreparedKernel> run;
  Attrs attrs;
  std::vector<Place> inputs, outputs;
  BufferId workspace;  // not valid(): needs none
};

struct MemoryReport {
  int64_t arena_bytes = 0;
  int64_t without_reuse_bytes = 0;  // all arena buffers side by side
  int64_t lower_bound_bytes = 0;    // the most that is alive at any one time
  int64_t state_bytes = 0, hyperparameter_bytes = 0, constant_bytes = 0;
};

struct Plan {
  std::string name;
  Target target;                       // what it was made for; its threads run at this level
  std::shared_ptr<const Graph> graph;  // what it runs: the step as rewritten for this CPU
  std::vector<Buffer> buffers;
  std::vector<Call> load, calls;
  size_t update_begin = 0;
  // In the graph's order. Places name the elements in their logical order, whatever the layout.
  std::vector<Place> outputs, states;
  std::vector<BufferId> data_inputs, hyperparameters;
  MemoryReport memory;
  std::map<std::string, std::string> tuned;  // kernels chosen by timing, by use: to be repeated

  const Buffer& buffer(BufferId id) const { return buffers[static_cast<size_t>(id.index)]; }
};

std::string print(const Plan& plan);
std::string print(const MemoryReport& report);

}  // namespace tessera::cpu
