#include "tessera/backend/cpu/kernels/preference.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "tessera/base/error.h"
#include "tessera/ops/registry.h"

namespace tessera::cpu {
namespace {

std::vector<std::string_view> names(std::span<const KernelEntry* const> entries) {
  std::vector<std::string_view> found;
  for (const KernelEntry* entry : entries) found.push_back(entry->name);
  return found;
}

// In the order of the list, less what this machine does not have.
TEST(Preference, OrdersTheEntriesOfEveryOperator) {
  for (const OpDef* row : all_ops()) {
    const auto list = preferred_kernels(row->name);
    const auto entries = names(all_entries(row->name));
    std::vector<std::string_view> wanted;
    std::copy_if(list.begin(), list.end(), std::back_inserter(wanted), [&](std::string_view name) {
      return std::find(entries.begin(), entries.end(), name) != entries.end();
    });
    EXPECT_EQ(entries, wanted) << row->name;
  }
}

TEST(Preference, KnowsNoNameTwice) {
  for (const OpDef* row : all_ops()) {
    const auto list = preferred_kernels(row->name);
    EXPECT_EQ(std::set(list.begin(), list.end()).size(), list.size()) << row->name;
  }
}

TEST(Preference, OfAContractionWithABodyIsThatOfTheContraction) {
  const auto conv = preferred_kernels("conv"), map = preferred_kernels("conv_map");
  EXPECT_EQ(map.data(), conv.data());
  const auto product = preferred_kernels("matmul_map");
  EXPECT_EQ(std::vector(product.begin(), product.end()),
            (std::vector<std::string_view>{"batch8", "packed_linear", "packed", "onednn_matmul"}));
}

TEST(Preference, EntriesWithABodyNeedWhatTheyAreMadeOfNeeds) {
  for (const OpDef* row : all_ops()) {
    for (const KernelEntry* entry : all_entries(row->name)) {
      if (!entry->made_of) continue;
      EXPECT_EQ(entry->name, entry->made_of->name);
      EXPECT_GE(entry->needs, entry->made_of->needs) << entry->name;
      EXPECT_EQ(entry->uses_whole_machine, entry->made_of->uses_whole_machine) << entry->name;
    }
  }
}

TEST(Preference, ATargetHasWhatItsLevelHas) {
  const KernelEntry portable{"a", "portable", nullptr, nullptr};
  KernelEntry avx2 = portable, library = portable;
  avx2.needs = CpuLevel::avx2;
  library.uses_whole_machine = true;
  const Target low{.level = CpuLevel::portable}, high{.level = CpuLevel::avx2};
  EXPECT_TRUE(is_usable(portable, low));
  EXPECT_FALSE(is_usable(avx2, low));
  EXPECT_TRUE(is_usable(avx2, high));
  EXPECT_TRUE(is_usable(library, {.level = machine_level()}));
  EXPECT_EQ(is_usable(library, low), machine_level() == CpuLevel::portable);
  EXPECT_FALSE(is_usable(portable, {.disabled_kernels = {"other", "portable"}}));
}

// A portable program uses nothing that is written for one kind of processor, and no library that
// asks the processor itself.
TEST(Preference, LittleIsPortable) {
  if (machine_level() == CpuLevel::portable) GTEST_SKIP() << "a library may use this whole machine";
  const Target low{.level = CpuLevel::portable};
  std::set<std::string_view> usable;
  for (const OpDef* row : all_ops()) {
    for (const KernelEntry* entry : all_entries(row->name)) {
      if (is_usable(*entry, low)) usable.insert(entry->name);
    }
  }
  EXPECT_EQ(usable, (std::set<std::string_view>{"interpreted", "runs"}));
}

std::string complaint(std::string_view name) {
  try {
    check_kernel_name(name, "VARIABLE");
  } catch (const Error& error) {
    return error.message();
  }
  return "";
}

TEST(Preference, UnknownNamesAreErrorsThatHelp) {
  EXPECT_EQ(complaint("winograd_4"), "");
  EXPECT_EQ(complaint("onednn_conv"), "");
  EXPECT_EQ(complaint("winograd"),
            "VARIABLE must name fast kernels, got 'winograd'; similar names are winograd_2, "
            "winograd_4; `tessera ops NAME` prints those of an operator.");
  EXPECT_EQ(complaint("zzz"),
            "VARIABLE must name fast kernels, got 'zzz'; `tessera ops NAME` prints those of an "
            "operator.");
}

}  // namespace
}  // namespace tessera::cpu
