// Everything a C++ program needs to run LibTorch modules as static programs.
#pragma once

#include "tessera/api/data_loader.h"
#include "tessera/api/executor/weights_file.h"
#include "tessera/api/logging.h"
#include "tessera/api/model.h"
#include "tessera/api/optimizer/optim.h"
#include "tessera/api/options/options.h"
#include "tessera/api/popdist.h"
