#include "tessera/backend/cpu/lower/draft.h"

namespace tessera::cpu {

BlockId Draft::add_block(TensorType type, Space space, int64_t index) {
  const BlockId id{static_cast<int32_t>(blocks.size())};
  blocks.push_back({std::move(type), space, index, id});
  return id;
}

BlockId Draft::home(BlockId id) const {
  while (block(id).home != id) id = block(id).home;
  return id;
}

bool whole(const Draft& draft, const Read& read) {
  const Shape& shape = draft.block(read.block).type.shape;
  return read.geometry.shape == shape && same_elements(read.geometry, dense(shape));
}

Read read_whole(const Draft& draft, BlockId block) {
  return {block, dense(draft.block(block).type.shape)};
}

}  // namespace tessera::cpu
