#include "tessera/api/environment.h"

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "tessera/api/options/options.h"
#include "tessera/base/error.h"
#include "tessera/base/error_log.h"
#include "tessera/base/log.h"

namespace tessera {
namespace {

std::string_view variable(const char* name) {
  const char* text = std::getenv(name);
  return text ? text : "";
}

bool is_on(const char* name) { return !variable(name).empty() && variable(name) != "0"; }

IpuModel model_of_version(std::string_view version) {
  if (version == "ipu1") return {1, 1216};
  if (version == "ipu2" || version.empty()) return {2, 1472};
  if (version == "ipu21") return {21, 1472};
  fail(ErrorKind::user, "POPTORCH_IPU_MODEL_VERSION must be ipu1, ipu2 or ipu21, not '{}'",
       version);
}

}  // namespace

std::optional<IpuModel> ipu_model(const Options& options) {
  const bool full = options.use_ipu_model().value_or(is_on("POPTORCH_IPU_MODEL"));
  const bool small = !options.use_ipu_model() && !full && is_on("POPTORCH_SMALL_IPU_MODEL");
  if (!full && !small) return {};
  IpuModel model = model_of_version(variable("POPTORCH_IPU_MODEL_VERSION"));
  if (small) model.tiles_per_ipu = 4;
  return model;
}

int64_t number_in_environment(const std::string& variable, int64_t otherwise) {
  const char* text = std::getenv(variable.c_str());
  if (!text) return otherwise;
  char* end = nullptr;
  const long long number = std::strtoll(text, &end, 10);
  check(end != text && *end == '\0', ErrorKind::value,
        "the environment variable {} must be a whole number, got '{}'", variable, text);
  return number;
}

bool checks_calls() {
  const std::string_view text = variable("TESSERA_CHECK");
  check(text.empty() || text == "0" || text == "1", ErrorKind::value,
        "TESSERA_CHECK must be 0 or 1, got '{}'", text);
  return text == "1";
}

void prepare_process(const Options& options) {
  set_error_log_folder(options.log_dir());
  limit_repeated_logs(options.max_repeat_logs());
  ipu_model(options);  // fails where it does not exist
  const std::string_view engine = variable("POPLAR_ENGINE_OPTIONS");
  if (engine.empty()) return;
  const auto parsed = nlohmann::json::parse(engine, nullptr, /*allow_exceptions=*/false);
  check(parsed.is_object(),
        "POPLAR_ENGINE_OPTIONS must be a JSON object such as {{\"autoReport.all\":\"true\"}}, not "
        "'{}'",
        engine);
  for (const auto& [name, value] : parsed.items()) {
    check(!value.is_structured(),
          "the value of '{}' in POPLAR_ENGINE_OPTIONS must be a string, not {}", name,
          value.dump());
  }
}

}  // namespace tessera
