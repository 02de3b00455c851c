// SPDX-License-Identifier: Apache-2.0
//
// The C++20 layer over splitzip.h: owners instead of create and destroy, spans instead of pointer and size, exceptions
// instead of status codes, and nothing else. Everything has get(), so that the C function for a case that is missing
// here can be called beside it. Header-only; needs the standard library and the C interface alone.
#pragma once

#if __cplusplus < 202002L
#error "splitzip.hpp needs C++20: compile with -std=c++20, or include splitzip.h, which needs C99 or C++11"
#else
#include "splitzip/codebook.hpp"
#include "splitzip/error.hpp"
#include "splitzip/frame.hpp"
#include "splitzip/splitzip.h"
#include "splitzip/tensor.hpp"
#include "splitzip/workers.hpp"
#endif
