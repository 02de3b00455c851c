// SPDX-License-Identifier: Apache-2.0
//
// Where frames are coded: on the CPU or on a GPU, with the same bytes. CUDA is known to device_cuda.cpp alone.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "splitzip/splitzip.h"

namespace splitzip::cli {

/// Tensors in the memory of a GPU, to be coded again and again as one frame. Times are seconds on the GPU.
class ResidentTensors {
 public:
  virtual ~ResidentTensors() = default;
  virtual double encode() = 0;
  virtual double decode() = 0;  // the frame that was encoded before
  virtual double copy() = 0;    // the values, from memory of the GPU to other memory of it
  virtual std::uint64_t frame_bytes() const = 0;
  virtual std::vector<std::uint8_t> decoded() const = 0;
};

/// The CPU; others differ in what they override.
class Device {
 public:
  virtual ~Device() = default;

  /// As splitzip_encode does with one tensor, whose values fill the memory that starts at the layout's base.
  virtual splitzip_status encode(const splitzip_tensor& tensor, const splitzip_layout& layout,
                                 const splitzip_encode_options& options, std::span<std::uint8_t> to, std::size_t& size,
                                 splitzip_error& error);
  /// Likewise splitzip_decode.
  virtual splitzip_status decode(const splitzip_frame& frame, const splitzip_tensor& tensor,
                                 const splitzip_layout& layout, const splitzip_decode_options& options,
                                 splitzip_error& error);
  /// NULL: what lies in host memory is coded there. `layouts` have addresses in `values` that count from 0.
  virtual std::unique_ptr<ResidentTensors> load(const std::vector<splitzip_tensor>& tensors,
                                                const std::vector<splitzip_layout>& layouts,
                                                std::span<const std::uint8_t> values);
  /// "": the CPU.
  virtual std::string name() const { return ""; }
};

/// "cpu" or "cuda". Throws Error where there is no such device, UsageError where this build knows none.
std::unique_ptr<Device> make_device(const std::string& name);

/// Of device_cuda.cpp or device_none.cpp.
std::unique_ptr<Device> make_cuda_device();

}  // namespace splitzip::cli
