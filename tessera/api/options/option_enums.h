// Named choices of the options, with PopTorch's numbers. OutputMode is the runtime's own.
#pragma once

#include "tessera/api/options/option_value.h"
#include "tessera/runtime/output_mode.h"

namespace tessera {

// When a model takes its devices.
enum class ConnectionType {
  always,     // before it is compiled
  on_demand,  // when it is compiled and about to run
  never       // not at all: it can only be compiled
};

enum class SyncPattern { full, single_pipeline, replica_and_ladder };

// How gradients of micro-batches and replicas become one.
enum class ReductionType { sum, mean, none };

enum class MeanReductionStrategy {
  running,  // the accumulator always holds a mean
  post,     // divide after adding up
  post_and_loss
};

// Which replicas form a group.
enum class CommGroupType { all, consecutive, orthogonal, none };

// The number that OutputMode.Default has for PopTorch's users; here it is an empty optional.
inline constexpr int64_t unset_output_mode = 4;

template <typename Enum>
constexpr std::string_view enum_name;
template <>
inline constexpr std::string_view enum_name<OutputMode> = "OutputMode";
template <>
inline constexpr std::string_view enum_name<ConnectionType> = "ConnectionType";
template <>
inline constexpr std::string_view enum_name<SyncPattern> = "SyncPattern";
template <>
inline constexpr std::string_view enum_name<ReductionType> = "ReductionType";
template <>
inline constexpr std::string_view enum_name<MeanReductionStrategy> = "MeanReductionStrategy";
template <>
inline constexpr std::string_view enum_name<CommGroupType> = "CommGroupType";

template <typename Enum>
OptionEnum option_enum(Enum member) {
  return {std::string(enum_name<Enum>), static_cast<int64_t>(member)};
}

// The member that "ConnectionType.Never" names; nothing for any other text.
std::optional<OptionEnum> enum_named(std::string_view text);

}  // namespace tessera
