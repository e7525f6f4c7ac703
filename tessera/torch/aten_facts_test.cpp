#include "tessera/torch/aten_facts.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <set>
#include <string>

#include "tessera/ops/aten_spelling.h"
#include "tessera/ops/registry.h"
#include "tessera/torch/compat.h"
#include "tessera/torch/dispatch.h"

namespace tessera {
namespace {

std::optional<c10::OperatorHandle> operator_named(std::string_view overload) {
  const std::string name(overload);
  const size_t dot = name.find('.');
  const auto found = c10::Dispatcher::singleton().findSchema(
      {"aten::" + name.substr(0, dot), dot == std::string::npos ? "" : name.substr(dot + 1)});
  return found ? std::optional(*found) : std::nullopt;
}

bool marks_as_written(const std::optional<c10::OperatorHandle>& op, const std::string& argument) {
  if (!op) return true;  // there is none: nothing to write in secret
  const auto at = op->schema().argumentIndexWithName(argument);
  return at && op->schema().arguments()[static_cast<size_t>(*at)].alias_info();
}

bool is_current(const AtenFacts& row) { return row.versions.include(compat::torch_version); }

TEST(AtenFacts, EveryNameIsAnOperatorOfThisPyTorch) {
  for (const AtenFacts& row : aten_facts()) {
    EXPECT_TRUE(operator_named(row.name) || !is_current(row)) << row.name;
  }
}

TEST(AtenFacts, SpellingsThatOnlyOtherVersionsHaveAreNamed) {
  std::set<std::string_view> of_others;
  for (const AtenFacts& row : aten_facts()) {
    if (!is_current(row)) of_others.insert(row.name);
  }
  for (const OpDef* row : all_ops()) {
    for (const AtenSpelling& spelling : row->aten) {
      if (spelling.overload.find("::") != std::string::npos) continue;  // one of our own
      EXPECT_TRUE(operator_named(spelling.overload) || of_others.contains(spelling.overload))
          << spelling.overload;
    }
  }
}

TEST(AtenFacts, NoNameStandsTwice) {
  std::set<std::string_view> names;
  for (const AtenFacts& row : aten_facts()) {
    if (!is_current(row)) continue;
    EXPECT_TRUE(names.insert(row.name).second) << row.name;
  }
}

TEST(AtenFacts, AreFoundByNameWithAndWithoutTheNamespace) {
  for (const AtenFacts& row : aten_facts()) {
    if (!is_current(row)) continue;
    EXPECT_EQ(&facts_of(row.name), &row);
    EXPECT_EQ(&facts_of("aten::" + std::string(row.name)), &row);
  }
  EXPECT_TRUE(facts_of("relu").name.empty());
  EXPECT_FALSE(facts_of("relu").aliases);
}

// Rows say which result is an argument's new value; that it has one is a fact of PyTorch's.
TEST(AtenFacts, SecretWritesAreThoseThatRowsKnow) {
  for (const OpDef* row : all_ops()) {
    for (const AtenSpelling& spelling : row->aten) {
      for (const auto& [argument, result] : parsed(spelling).hidden_mutations) {
        EXPECT_NE(is_named(facts_of(spelling.overload).secret_writes, argument),
                  marks_as_written(operator_named(spelling.overload), argument))
            << spelling.overload << " " << argument;
      }
    }
  }
}

TEST(AtenFacts, SecretWritesAreArgumentsThatNoSchemaMarks) {
  for (const AtenFacts& row : aten_facts()) {
    if (row.secret_writes.empty() || !is_current(row)) continue;
    size_t found = 0;
    for (const c10::Argument& argument : operator_named(row.name)->schema().arguments()) {
      if (!is_named(row.secret_writes, argument.name())) continue;
      EXPECT_FALSE(argument.alias_info()) << row.name << " " << argument.name();
      ++found;
    }
    const auto commas = std::count(row.secret_writes.begin(), row.secret_writes.end(), ',');
    EXPECT_EQ(found, static_cast<size_t>(commas) + 1) << row.name;
  }
}

// The table and the handlers above autograd name the same operators.
TEST(AtenFacts, RenamedArgumentsHaveOneOfTheirNames) {
  for (const AtenFacts& row : aten_facts()) {
    const auto op = operator_named(row.name);
    if (row.renamed.empty() || !op) continue;
    const std::string earlier(row.renamed.substr(0, row.renamed.find('=')));
    const std::string later(later_name(row, earlier));
    EXPECT_TRUE(op->schema().argumentIndexWithName(earlier) ||
                op->schema().argumentIndexWithName(later))
        << row.name;
    EXPECT_EQ(later_name(row, later), "");
  }
  EXPECT_EQ(later_name({}, ""), "");
}

TEST(AtenFacts, WhatIsSeenWholeHasAHandler) {
  EXPECT_EQ(current_recorder(), nullptr);  // so that the handlers are linked
  for (const c10::OperatorName& name : c10::Dispatcher::singleton().getAllOpNames()) {
    if (!name.name.starts_with("aten::")) continue;
    const auto op = c10::Dispatcher::singleton().findOp(name);
    const AtenFacts& facts = facts_of(c10::toString(name));
    EXPECT_EQ(op->hasKernelForDispatchKey(compat::above_autograd),
              facts.loss || facts.caught_whole || !facts.weights.empty())
        << c10::toString(name);
  }
}

TEST(AtenFacts, UndeclaredViewsDeclareNoAlias) {
  for (const AtenFacts& row : aten_facts()) {
    if (!row.aliases || !is_current(row)) continue;
    for (const c10::Argument& result : operator_named(row.name)->schema().returns()) {
      const auto* alias = result.alias_info();
      EXPECT_TRUE(!alias || alias->isWrite()) << row.name;  // or its row would say nothing new
    }
  }
}

TEST(TorchVersions, IncludeBothEnds) {
  constexpr TorchVersions some{113, 206};
  EXPECT_TRUE(some.include(113) && some.include(200) && some.include(206));
  EXPECT_FALSE(some.include(112) || some.include(207));
}

}  // namespace
}  // namespace tessera
