// SPDX-License-Identifier: Apache-2.0
//
// Stands in for the installed header, which is made of the same files: tests look inside of the library, and would have them twice.
#pragma once

#include "cuda/device.cuh"
