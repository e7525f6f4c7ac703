#include "tessera/api/options/pipeline_check.h"

#include "tessera/base/error.h"

namespace tessera {

void check_pipeline(const Options& options, int64_t stages, bool training) {
  if (stages <= 1) return;
  const int64_t accumulated = options.Training().gradient_accumulation();
  const int64_t iterations = options.device_iterations();
  check(!training || accumulated >= 2 * stages - 1,
        "poptorch.Options().Training.gradientAccumulation must be at least {} (2 x {} pipeline "
        "stages - 1) to train this model, but it is set to {}; raise it, put blocks on the same "
        "IPU, or use poptorch.ShardedExecution",
        2 * stages - 1, stages, accumulated);
  check(training || iterations >= stages,
        "poptorch.Options().deviceIterations must be at least {}, the number of pipeline stages of "
        "this model, but it is set to {}; raise it, put blocks on the same IPU, or use "
        "poptorch.ShardedExecution",
        stages, iterations);
}

}  // namespace tessera
