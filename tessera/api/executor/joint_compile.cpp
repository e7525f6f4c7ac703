#include "tessera/api/executor/joint_compile.h"

#include <algorithm>
#include <charconv>
#include <sstream>
#include <string_view>
#include <vector>

#include "tessera/base/cpu_level.h"
#include "tessera/base/digest.h"
#include "tessera/base/error.h"
#include "tessera/base/log.h"

namespace tessera {
namespace {

// What an instance says of itself, a line for each fact; those with a name must be the same.
struct Fact {
  std::string name, value;
};

std::string digest_of(const CompileOptions& compile) {
  Digest digest;
  for (const std::string& pass : compile.disabled_passes) digest.add(pass);
  digest.add(compile.keep_operators).add(compile.halves.rounding);
  digest.add(compile.halves.matmul_partials).add(compile.halves.convolution_partials);
  digest.add(compile.target.precise).add(compile.target.autotune);
  for (const std::string& kernel : compile.target.disabled_kernels) digest.add(kernel);
  return digest.hex();
}

std::vector<Fact> facts_of(const JointCompile& joint, const CompileOptions& compile,
                           const RngState& rng) {
  const StepSignature& signature = joint.signature;
  const auto seed = joint.has_seed ? fmt::format("{}", rng.seed) : "not set";
  return {{"replicationFactor", fmt::format("{}", signature.replicas)},
          {"gradientAccumulation", fmt::format("{}", signature.gradient_accumulation)},
          {"deviceIterations", fmt::format("{}", signature.device_iterations)},
          {"randomSeed", seed},
          {"program", joint.program_key},
          {"settings of the compiler", digest_of(compile)},
          {"", fmt::format("{}", static_cast<int>(compile.target.level))},
          {"", fmt::format("{} {}", rng.seed, rng.step)}};
}

std::string text_of(const std::vector<Fact>& facts) {
  std::string text;
  for (const Fact& fact : facts) text += fact.value + '\n';
  return text;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

// Digests mean nothing to anybody.
std::string difference(const Fact& first, const std::string& other) {
  if (first.name == "program") {
    return "it has another model, optimiser, loss or batch size";
  }
  if (first.value.size() == 64) return fmt::format("it has other {}", first.name);
  return fmt::format("its {} is {}, not {}", first.name, other, first.value);
}

}  // namespace

void agree(dist::Link& instances, const JointCompile& joint, CompileOptions& compile,
           RngState& rng) {
  std::vector<Fact> facts = facts_of(joint, compile, rng);
  const auto said =
      instances.gather(fmt::format("compiling '{}'", joint.name), text_of(facts), joint.poll);
  const auto first = lines_of(said[0]);
  for (size_t i = 0; i < facts.size(); ++i) facts[i].value = first.at(i);
  int level = static_cast<int>(compile.target.level);
  for (size_t instance = 0; instance < said.size(); ++instance) {
    const auto lines = lines_of(said[instance]);
    for (size_t i = 0; i < facts.size(); ++i) {
      check(facts[i].name.empty() || lines.at(i) == facts[i].value,
            "{} compiles another program '{}' than instance 0: {}; all instances must train the "
            "same model with the same options",
            instances.name_of(static_cast<int>(instance)), joint.name,
            difference(facts[i], lines.at(i)));
    }
    level = std::min(level, std::stoi(lines.at(facts.size() - 2)));
  }
  if (level != static_cast<int>(compile.target.level)) {
    compile.target.level = static_cast<CpuLevel>(level);
    log(LogLevel::warn,
        "instances run on different CPUs: all of them compile for {}, so that they have the same "
        "results",
        name_of(compile.target.level));
  }
  std::istringstream(first.back()) >> rng.seed >> rng.step;
}

}  // namespace tessera
