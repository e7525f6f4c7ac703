// Makes a captured training step a whole one: takes the gradients that capture left as outputs
// `Gradient___<parameter>`, gathers them over micro-batches and replicas and appends the
// optimiser's update.
//
// Hyper-parameters become inputs `<name>.<group>` of type f32[2] (base/float_pair.h), so that a
// changed learning rate never compiles again. What the optimiser remembers becomes states of the
// names that PopTorch users know.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/replica_groups.h"
#include "tessera/ir/graph.h"

namespace tessera {

// The name of the graph output that holds a parameter's gradient.
std::string gradient_name(std::string_view parameter);

// The parameter for which a state was added; empty for a state that is not of one parameter.
std::string_view parameter_of_state(std::string_view state);

struct UpdateSpec {
  struct Group {
    std::vector<std::string> parameters;
    std::string op = "sgd";  // the optimiser's row
    bool velocity = false;   // keep the states that the row can do without
    bool maximize = false;   // the loss: against its gradient
    Attrs attrs = {};
    // Element types of the gradients that are gathered, and of what the row remembers, by the
    // row's operands; f32 where nothing is said.
    DType accumulator = DType::f32;
    std::map<std::string, DType, std::less<>> memories = {};
    // All of these have their parameter's type instead.
    bool as_parameters = false;
  };

  int64_t gradient_accumulation = 1;
  int64_t replicas = 1;
  bool mean_reduction = true;  // over micro-batches and replicas; else gradients are added up
  // The mean of the gradients so far is kept, whose sum might overflow; else it is divided at the
  // end.
  bool running_mean = false;
  // Gradients are divided by this value, f32[], of the graph (scale_loss.h); not valid(): they are
  // what they are.
  ValueId loss_scale = {};
  // Scales all gradients down to a norm that is the input `max_grad_norm`.
  bool clip_norm = false;
  std::vector<Group> groups;
  // Parameters of which not all replicas have the same value. Their gradients are added up within a
  // group; a mean is over all replicas nevertheless, as of a whole of which the groups have parts.
  std::map<std::string, ReplicaGroups> replica_groups = {};
};

// Parameters in no group, or without a gradient, stay as they are; every gradient output is gone.
// Between a micro-batch's gradient and the update all is computed in f32, and only what is stored
// (accumulators, states) is rounded to its type. Replicas' gradients are added up in the order of
// ranks.
void add_optimizer(Graph& graph, const UpdateSpec& spec);

}  // namespace tessera
