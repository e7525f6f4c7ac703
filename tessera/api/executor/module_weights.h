// The tensors of the user's module that the weights of a program stand for. Users replace them
// (module.weight = ...) and give them other memory (.data = ..., .double().float(), channels_last),
// so they are looked up again by name. A weight that was replaced is the user's newest word: it
// goes to the device before the program runs again.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tessera/api/executor/host_weights.h"
#include "tessera/torch/recorder.h"

namespace tessera {

struct ModuleWeight {
  std::string name;
  StateKind kind = StateKind::parameter;
  at::Tensor tensor;                   // the module's own; undefined where it has none any more
  at::Tensor host;                     // a window over its memory as it was last looked up
  std::shared_ptr<HostWeight> record;  // of that memory
  std::vector<std::string> tied = {};  // other names of the same tensor
  uint64_t sent_version = 0;           // of the record
  bool to_send = false;                // replaced, and not sent since
  bool requires_grad = false;          // as it was last looked up
  bool told = false;                   // the user, that a change of it is not followed
  std::string misfit = {};             // why the program cannot have what is there now
};

// Another tensor over the memory that this one has now.
at::Tensor window_of(const at::Tensor& tensor);

class ModuleWeights {
 public:
  ModuleWeights() = default;
  // `tensors` are the module's, each under all of its names; `trained`: by the program.
  ModuleWeights(const std::vector<BoundState>& states, const std::vector<NamedTensor>& tensors,
                bool trained);

  size_t size() const { return weights_.size(); }
  ModuleWeight& operator[](size_t index) { return weights_[index]; }
  auto begin() { return weights_.begin(); }
  auto end() { return weights_.end(); }

  // True where a tensor that is known has got other memory. For every call: cheap.
  bool moved() const;

  // Finds the weights by name. `replaced` sees those that have another tensor or other memory, as
  // they were until now.
  void look_up(const std::vector<NamedTensor>& tensors,
               const std::function<void(size_t index)>& replaced);

  // Error that names a weight whose tensor is no longer what the program was compiled for.
  void check_fit() const;

 private:
  void notice_freezing(ModuleWeight& weight) const;
  void find_misfits(const std::vector<NamedTensor>& tensors);

  std::vector<ModuleWeight> weights_;
  bool trained_ = false;
};

}  // namespace tessera
