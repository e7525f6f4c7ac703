// What lowering works on between Graph and Plan: calls over blocks. A block is a value with memory
// of its own; views are gone, a call that reads one reads a block through a geometry.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tessera/backend/cpu/layout.h"
#include "tessera/backend/cpu/plan.h"
#include "tessera/ir/graph.h"

namespace tessera::cpu {

using BlockId = Id<struct BlockTag>;

struct Block {
  TensorType type;
  ValueId value;  // of the graph, all of which it holds
  Space space = Space::arena;
  int64_t index = 0;  // within its space; unused in the arena
  BlockId home;       // the block whose memory it uses: itself, or what it was written over
  Layout layout = {};
};

struct Read {
  BlockId block;      // not valid(): an operand that was left out
  ValueId value;      // of the graph, which it reads: the block's, or a view of it
  Geometry geometry;  // physical where a layout was chosen
  Layout layout = {};
};

struct DraftCall {
  NodeId node;  // not valid(): a copy of the only input, perhaps into another layout
  std::vector<Read> inputs;
  std::vector<BlockId> outputs;
};

struct DraftState {
  BlockId initial;
  Read after_micro_batch, after_update;
};

struct Draft {
  std::shared_ptr<const Graph> graph;
  Target target;
  std::vector<Block> blocks;
  std::vector<DraftCall> load, calls;
  size_t update_begin = 0;  // calls before it run for every micro-batch
  std::vector<Read> outputs;
  std::vector<DraftState> states;
  std::vector<BlockId> data_inputs, hyperparameters;

  Block& block(BlockId id) { return blocks[static_cast<size_t>(id.index)]; }
  const Block& block(BlockId id) const { return blocks[static_cast<size_t>(id.index)]; }
  BlockId add_block(TensorType type, ValueId value, Space space = Space::arena, int64_t index = 0);
  // The block whose memory this one uses in the end.
  BlockId home(BlockId id) const;
};

// Reads all of a block in the order of its memory.
bool whole(const Draft& draft, const Read& read);
Read read_whole(const Draft& draft, BlockId block);
// Reads all of a block in its logical order.
Read read_in_order(const Draft& draft, BlockId block);

}  // namespace tessera::cpu
