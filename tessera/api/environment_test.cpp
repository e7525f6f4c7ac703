#include "tessera/api/environment.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <map>

#include "tessera/api/options/options.h"
#include "tessera/base/error.h"

namespace tessera {
namespace {

class Environment : public testing::Test {
 protected:
  Environment() {
    for (const char* name : names) unsetenv(name);
  }
  ~Environment() override {
    for (const char* name : names) unsetenv(name);
  }

  static constexpr const char* names[] = {"POPTORCH_IPU_MODEL", "POPTORCH_SMALL_IPU_MODEL",
                                          "POPTORCH_IPU_MODEL_VERSION", "POPLAR_ENGINE_OPTIONS",
                                          "TESSERA_NUM_IPUS"};
  Options options_;
};

void set(const char* name, const char* value) { setenv(name, value, 1); }

TEST_F(Environment, TheHardwareIsTheDefault) { EXPECT_FALSE(ipu_model(options_)); }

// spec: 7 POPTORCH_IPU_MODEL, 7 POPTORCH_IPU_MODEL_VERSION
TEST_F(Environment, TheModelHasTheTilesOfItsVersion) {
  set("POPTORCH_IPU_MODEL", "1");
  EXPECT_EQ(ipu_model(options_)->version, 2);
  const std::map<std::string, int64_t> tiles = {{"ipu1", 1216}, {"ipu2", 1472}, {"ipu21", 1472}};
  for (const auto& [version, count] : tiles) {
    set("POPTORCH_IPU_MODEL_VERSION", version.c_str());
    EXPECT_EQ(ipu_model(options_)->tiles_per_ipu, count) << version;
  }
  set("POPTORCH_IPU_MODEL", "0");
  EXPECT_FALSE(ipu_model(options_));
}

// spec: 7 POPTORCH_SMALL_IPU_MODEL
TEST_F(Environment, TheSmallModelHasFourTiles) {
  set("POPTORCH_SMALL_IPU_MODEL", "1");
  EXPECT_EQ(ipu_model(options_)->tiles_per_ipu, 4);
  set("POPTORCH_IPU_MODEL", "1");  // the full one wins
  EXPECT_EQ(ipu_model(options_)->tiles_per_ipu, 1472);
}

// spec: 7 POPTORCH_IPU_MODEL, 2.2 useIpuModel
TEST_F(Environment, TheOptionWins) {
  EXPECT_TRUE(ipu_model(Options().useIpuModel(true)));
  set("POPTORCH_IPU_MODEL", "1");
  set("POPTORCH_SMALL_IPU_MODEL", "1");
  EXPECT_FALSE(ipu_model(Options().useIpuModel(false)));
}

// spec: 7 POPTORCH_IPU_MODEL_VERSION
TEST_F(Environment, AVersionThatDoesNotExist) {
  set("POPTORCH_IPU_MODEL_VERSION", "ipu3");
  prepare_process(options_);  // nobody asks for a model
  set("POPTORCH_IPU_MODEL", "1");
  EXPECT_THROW(prepare_process(options_), Error);
}

// spec: 7 POPLAR_ENGINE_OPTIONS
TEST_F(Environment, EngineOptionsAreAnObject) {
  for (const char* text : {"", "{}", R"({"a":"b","c":1})"}) {
    set("POPLAR_ENGINE_OPTIONS", text);
    EXPECT_NO_THROW(prepare_process(options_)) << text;
  }
  for (const char* text : {"a", "[]", "{", R"({"a":{}})"}) {
    set("POPLAR_ENGINE_OPTIONS", text);
    EXPECT_THROW(prepare_process(options_), Error) << text;
  }
}

}  // namespace
}  // namespace tessera
