#include "tessera/backend/cpu/lower/draft.h"

namespace tessera::cpu {

BlockId Draft::add_block(TensorType type, ValueId value, Space space, int64_t index) {
  const BlockId id{static_cast<int32_t>(blocks.size())};
  blocks.push_back({std::move(type), value, space, index, id, {}});
  return id;
}

BlockId Draft::home(BlockId id) const {
  while (block(id).home != id) id = block(id).home;
  return id;
}

bool whole(const Draft& draft, const Read& read) {
  const Read all = read_whole(draft, read.block);
  return read.layout == all.layout && read.geometry.shape == all.geometry.shape &&
         same_elements(read.geometry, all.geometry);
}

Read read_whole(const Draft& draft, BlockId id) {
  const Block& block = draft.block(id);
  return {id, block.value, dense(physical_shape(block.layout, block.type.shape)), block.layout};
}

Read read_in_order(const Draft& draft, BlockId id) {
  const Block& block = draft.block(id);
  return {id, block.value, logical_order(block.layout, block.type.shape), {}};
}

}  // namespace tessera::cpu
