#include "tessera/api/options/option_enums.h"

namespace tessera {
namespace {

struct Member {
  std::string_view type, name;
  int64_t number;
};

constexpr Member members[] = {
    {"OutputMode", "Final", 0},
    {"OutputMode", "EveryN", 1},
    {"OutputMode", "All", 2},
    {"OutputMode", "Sum", 3},
    {"OutputMode", "Default", unset_output_mode},
    {"ConnectionType", "Always", 0},
    {"ConnectionType", "OnDemand", 1},
    {"ConnectionType", "Never", 2},
    {"SyncPattern", "Full", 0},
    {"SyncPattern", "SinglePipeline", 1},
    {"SyncPattern", "ReplicaAndLadder", 2},
    {"ReductionType", "Sum", 0},
    {"ReductionType", "Mean", 1},
    {"ReductionType", "NoReduction", 2},
    {"MeanReductionStrategy", "Running", 0},
    {"MeanReductionStrategy", "Post", 1},
    {"MeanReductionStrategy", "PostAndLoss", 2},
    {"CommGroupType", "All", 0},
    {"CommGroupType", "Consecutive", 1},
    {"CommGroupType", "Orthogonal", 2},
    {"CommGroupType", "NoGrouping", 3},
    {"HalfFloatCastingBehavior", "FloatDowncastToHalf", 0},
    {"HalfFloatCastingBehavior", "HalfUpcastToFloat", 1},
    {"HalfFloatCastingBehavior", "Default", 2},
};

}  // namespace

std::optional<OptionEnum> enum_named(std::string_view text) {
  constexpr std::string_view package = "poptorch.";
  if (text.starts_with(package)) text.remove_prefix(package.size());
  const size_t dot = text.find('.');
  if (dot == std::string_view::npos) return std::nullopt;
  for (const Member& member : members) {
    if (member.type != text.substr(0, dot) || member.name != text.substr(dot + 1)) continue;
    return OptionEnum{std::string(member.type), member.number};
  }
  return std::nullopt;
}

}  // namespace tessera
