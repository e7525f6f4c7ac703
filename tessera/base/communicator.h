// How the replicas of one program speak with each other: collectives that every replica calls, in
// the same order. Results have the same bits whoever comes first: sums are made in the order of
// ranks.
#pragma once

#include <cstddef>
#include <exception>
#include <span>

namespace tessera {

class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;

  // result[i] is the sum of every rank's values[i], from rank 0 to the last. Both have the same
  // length on every rank, and may be the same memory.
  virtual void all_reduce(std::span<const float> values, std::span<float> result) = 0;
  // What `root` has, everywhere.
  virtual void broadcast(std::span<std::byte> values, int root) = 0;
  // Nobody goes on before all are here.
  virtual void barrier() = 0;
};

// Thrown by a collective that cannot end because another replica has failed. That one's own
// exception says why.
class Aborted : public std::exception {
 public:
  const char* what() const noexcept override { return "another replica failed"; }
};

}  // namespace tessera
