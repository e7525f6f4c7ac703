// How the replicas of one program speak with each other: collectives that every replica calls, in
// the same order. Results have the same bits whoever comes first: sums are made in the order of
// ranks. Replicas are threads of this process, and of others where there are several instances.
#pragma once

#include <cstddef>
#include <exception>
#include <span>

#include "tessera/base/dtype.h"

namespace tessera {

// A tensor that is added up over ranks: this rank's values, and where the sums go. Both may be the
// same memory.
struct Summand {
  const std::byte* values = nullptr;
  std::byte* sums = nullptr;
  size_t count = 0;  // elements

  bool operator==(const Summand&) const = default;
};

// Tensors that are added up in one journey; every rank has as many of the same sizes.
struct Addition {
  DType dtype = DType::f32;  // or f16: computed in float, and rounded after each rank's values
  std::span<const Summand> summands;
};

class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual int local_rank() const = 0;  // among the replicas of this process

  // Each sum is that of every rank's values, from rank 0 to the last. `number` is what the program
  // calls this addition, the same on every rank.
  virtual void all_reduce(size_t number, const Addition& addition) = 0;

  // Whether it is worth the while to call this as soon as values are whole. The addition goes on
  // meanwhile, and all_reduce() of the same number waits for its end; nobody may touch the memory
  // before.
  virtual bool adds_up_early() const { return false; }
  virtual void begin_all_reduce(size_t /*number*/, const Addition& /*addition*/) {}

  // Nobody of this process goes on before all of it are here.
  virtual void barrier() = 0;
};

// Thrown by a collective that cannot end because another replica has failed. That one's own
// exception says why.
class Aborted : public std::exception {
 public:
  const char* what() const noexcept override { return "another replica failed"; }
};

}  // namespace tessera
