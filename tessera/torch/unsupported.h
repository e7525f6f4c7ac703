// Operators that no program can have, because they take or give tensors for which a graph has no
// type: complex numbers, sparse tensors. Capture goes on behind such a call with stand-ins for its
// results, so that one message can name all of them.
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "tessera/torch/aten_call.h"
#include "tessera/torch/fake_storage.h"
#include "tessera/torch/provenance.h"

namespace tessera {

// False for a tensor that no graph can hold.
bool fits_in_graph(const at::Tensor& tensor);

class Unsupported {
 public:
  // True where the call takes or asks for what no graph can hold, or works on a stand-in.
  bool concerns(const AtenCall& call) const;

  // Notes the call, unless it only works on stand-ins, and makes stand-ins of what it would return.
  void record(const AtenCall& call, const Origin& origin, const torch::jit::Stack& results,
              FakeStorages& fakes, torch::jit::Stack& stack);

  // The call cannot even be asked what it would return.
  [[noreturn]] void give_up(const AtenCall& call, const Origin& origin);

  bool is_stand_in(const at::Tensor& tensor) const;

  // Error that names all operators found, where there are any.
  void check_none() const;

 private:
  struct Found {
    std::string name;
    std::string place;
    std::string reason;
  };

  void note(const AtenCall& call, const Origin& origin, const torch::jit::Stack& results);

  std::vector<Found> found_;
  std::unordered_map<const c10::StorageImpl*, c10::Storage> stand_ins_;
};

}  // namespace tessera
