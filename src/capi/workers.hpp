// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cpu/workers.hpp"
#include "splitzip/splitzip.h"

/// What the C interface hands out as an opaque pointer.
struct splitzip_workers {
  splitzip::Workers threads;
};
