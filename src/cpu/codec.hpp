// SPDX-License-Identifier: Apache-2.0
//
// Whole frames on the CPU. These functions check the caller's arguments and the frame's bytes; the loops below them check nothing.
#pragma once

#include <cstdint>
#include <span>

#include "codebook/codebook.hpp"
#include "cpu/workers.hpp"
#include "format/frame.hpp"

namespace splitzip {

using Tensors = std::span<const splitzip_tensor>;
using Layouts = std::span<const splitzip_layout>;

/// The entry that `tensor` gives, with the codebook's slot where the caller left the default. Checks all but sizes.
splitzip_status make_entry(const splitzip_tensor& tensor, std::uint32_t index, FrameEntry& entry,
                           splitzip_error* error);

splitzip_status frame_geometry(Tensors tensors, bool checksums, FrameGeometry& geometry, splitzip_error* error);

/// `workers` may be nullptr: the calling thread alone.
splitzip_status encode_frame(Tensors tensors, Layouts sources, const splitzip_encode_options& options, Workers* workers,
                             std::span<std::uint8_t> dst, std::size_t& size, splitzip_error* error);

/// `frame` was checked when it was opened.
splitzip_status decode_frame(const splitzip_frame& frame, Tensors tensors, Layouts destinations, Workers* workers,
                             splitzip_error* error);

/// Tokens of one unit of the frame's tensor `index`.
struct UnitSlice {
  std::uint32_t index = 0;
  std::uint64_t unit = 0;
  std::uint32_t first_token = 0;
  std::uint32_t tokens = 0;
};

splitzip_status decode_unit(const splitzip_frame& frame, const splitzip_tensor& tensor, const UnitSlice& slice,
                            const splitzip_layout& destination, splitzip_error* error);

}  // namespace splitzip
