// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdexcept>

namespace splitzip::bench {

/// What cannot be measured, and why.
class Failure : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace splitzip::bench
