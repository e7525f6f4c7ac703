// Everything a C++ program needs to run LibTorch modules as static programs.
#pragma once

#include "tessera/api/data_loader.h"
#include "tessera/api/model.h"
#include "tessera/api/optim.h"
#include "tessera/api/options.h"
#include "tessera/api/weights_file.h"
