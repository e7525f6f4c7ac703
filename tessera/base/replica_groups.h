// How the replicas of a program form groups: of the same size, each replica in one of them.
#pragma once

#include <cstdint>

namespace tessera {

struct ReplicaGroups {
  int64_t size = 0;         // replicas of a group; 0: all of them are one
  bool orthogonal = false;  // of m groups, group i has i, i + m, i + 2m, ...; else neighbours

  bool operator==(const ReplicaGroups&) const = default;

  int64_t count(int64_t replicas) const { return size == 0 ? 1 : replicas / size; }
  int64_t size_of(int64_t replicas) const { return size == 0 ? replicas : size; }
  int64_t group_of(int64_t replica, int64_t replicas) const {
    return orthogonal ? replica % count(replicas) : replica / size_of(replicas);
  }
  // The replica that is number `i` of a group, by rank.
  int64_t member(int64_t group, int64_t i, int64_t replicas) const {
    return orthogonal ? group + i * count(replicas) : group * size_of(replicas) + i;
  }
  int64_t place_of(int64_t replica, int64_t replicas) const {  // its `i`
    return orthogonal ? replica / count(replicas) : replica % size_of(replicas);
  }
  // Whether so many replicas can be divided like that.
  bool divide(int64_t replicas) const {
    return size >= 0 && replicas >= 1 && (size == 0 || replicas % size == 0);
  }
};

}  // namespace tessera
