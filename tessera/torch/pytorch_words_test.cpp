// Whether this PyTorch still says what the table of its words expects.
#include "tessera/torch/pytorch_words.h"

#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "tessera/torch/fake_storage.h"

namespace tessera {
namespace {

std::string words_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  }
  return {};
}

std::string meta_rule_of(const char* name, const char* overload) {
  const auto op = c10::Dispatcher::singleton().findSchemaOrThrow(name, overload);
  const std::string table = op.dumpComputedTable();
  return std::string(place_of_meta_rule(table));
}

TEST(PytorchWords, ATensorWithoutMemory) {
  FakeStorages storages;
  const at::Tensor fake = storages.make(dense({2}), at::kFloat);
  const std::string words = words_of([&] { fake.data_ptr<float>(); });
  EXPECT_TRUE(says_no_memory(words)) << words;
  EXPECT_FALSE(says_wrong_types(words));
}

TEST(PytorchWords, ElementTypesThatAreRefused) {
  const at::Tensor floats = at::ones({2, 2}), doubles = at::ones({2, 2}, at::kDouble);
  at::Tensor ints = at::ones({2, 2}, at::kInt);
  const std::function<void()> calls[] = {
      [&] { at::bitwise_and(floats, floats); },
      [&] { at::mm(floats, doubles); },
      [&] { at::add_out(ints, floats, floats); },
      [&] { at::sub(ints.to(at::kBool), 1); },
      [&] { at::pow(ints, -1); },
  };
  for (const auto& call : calls) {
    const std::string words = words_of(call);
    EXPECT_TRUE(says_wrong_types(words)) << words;
    EXPECT_FALSE(says_no_memory(words)) << words;
  }
}

TEST(PytorchWords, WhatIsWrongWithShapesIsNotAboutTypes) {
  const std::string words = words_of([] { at::mm(at::ones({2, 3}), at::ones({2, 3})); });
  EXPECT_FALSE(words.empty());
  EXPECT_FALSE(says_wrong_types(words)) << words;
}

TEST(PytorchWords, WhereARuleForShapesWasWritten) {
  const std::string own = meta_rule_of("aten::add", "Tensor");
  EXPECT_TRUE(is_kernels_own_rule(own) && is_rule_in_cpp(own)) << own;
  const std::string generic = meta_rule_of("aten::square", "");  // in terms of others
  EXPECT_TRUE(is_rule_in_cpp(generic) && !is_kernels_own_rule(generic)) << generic;
  const std::string_view none = place_of_meta_rule("CPU: registered at kernels.cpp:1\n");
  EXPECT_TRUE(none.empty() && !is_rule_in_cpp(none) && !is_kernels_own_rule(none));
}

}  // namespace
}  // namespace tessera
