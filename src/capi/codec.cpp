// SPDX-License-Identifier: Apache-2.0
#include "cpu/codec.hpp"
#include "capi/workers.hpp"

#include <cstring>

namespace {

using splitzip::fail;

template <typename Options>
bool has_size(const Options* options) {
  return options == nullptr || options->struct_size == sizeof *options;
}

/// Arrays of tensors and layouts, and that each layout is of this version.
splitzip_status check_arrays(const splitzip_tensor* tensors, const splitzip_layout* layouts, size_t count,
                             splitzip_error* error) {
  if (count != 0 && (tensors == nullptr || layouts == nullptr)) {
    return fail(error, SPLITZIP_ERROR_INVALID_ARGUMENT, "tensors or layouts is NULL");
  }
  for (size_t i = 0; i < count; ++i) {
    if (layouts[i].struct_size != sizeof layouts[i]) {
      return fail(error, SPLITZIP_ERROR_INVALID_ARGUMENT, "struct_size of the layout is not that of this version",
                  {.tensor = i});
    }
  }
  return SPLITZIP_OK;
}

splitzip::Workers* threads_of(splitzip_workers* workers) { return workers == nullptr ? nullptr : &workers->threads; }

splitzip_status open_frame(const void* data, std::size_t size, splitzip::FrameLength length,
                           const std::uint64_t* expected_nonce, splitzip_frame* frame, splitzip_error* error) {
  if (frame == nullptr || (data == nullptr && size != 0)) {
    return fail(error, SPLITZIP_ERROR_INVALID_ARGUMENT, "data or frame is NULL");
  }
  splitzip::FrameHeader header;
  const auto status = splitzip::check_frame(static_cast<const std::uint8_t*>(data), size, length, header, error);
  if (status != SPLITZIP_OK) return status;
  if (expected_nonce != nullptr && *expected_nonce != header.nonce) {
    return fail(error, SPLITZIP_ERROR_NONCE_MISMATCH, "the frame is of another generation than is expected",
                {.offset = 8});
  }
  if ((header.flags & splitzip::kFlagOverBudget) != 0) {
    return fail(error, SPLITZIP_ERROR_OVER_BUDGET, "the sender's frame did not fit in its budget", {.offset = 6});
  }
  *frame = {sizeof *frame,      data,
            header.frame_bytes, header.nonce,
            header.flags,       header.entry_count,
            header.chunk_count, header.tile_count,
            header.spill_words, 0};
  return SPLITZIP_OK;
}

constexpr splitzip_encode_options kDefaultOptions = SPLITZIP_ENCODE_OPTIONS_INIT;

}  // namespace

splitzip_tensor splitzip_tensor_contiguous(splitzip_element_type type, splitzip_mode mode,
                                           const splitzip_codebook* codebook, uint32_t tokens, uint32_t channels) {
  return {sizeof(splitzip_tensor), type, mode, codebook, 0, 0, tokens, tokens == 0 ? 1 : tokens, channels, 0, 1,
          SPLITZIP_SLOT_DEFAULT};
}

splitzip_layout splitzip_layout_contiguous(const void* base, const splitzip_tensor* tensor) {
  splitzip_layout layout{};
  layout.struct_size = sizeof layout;
  layout.base = const_cast<void*>(base);
  if (tensor == nullptr) return layout;
  const auto range = static_cast<std::int64_t>(std::uint64_t{tensor->channels} * splitzip_element_bytes(tensor->type));
  layout.range_stride = range;
  layout.row_stride = static_cast<std::int64_t>(static_cast<std::uint64_t>(range) * tensor->ranges);
  return layout;
}

splitzip_status splitzip_get_frame_sizes(const splitzip_tensor* tensors, size_t count,
                                         const splitzip_encode_options* options, splitzip_frame_sizes* sizes,
                                         splitzip_error* error) {
  if (sizes == nullptr || sizes->struct_size != sizeof *sizes || !has_size(options) ||
      (count != 0 && tensors == nullptr)) {
    return fail(error, SPLITZIP_ERROR_INVALID_ARGUMENT, "NULL, or a struct_size that is not that of this version");
  }
  const bool checksums = (options == nullptr ? kDefaultOptions : *options).checksums != 0;
  splitzip::FrameGeometry frame;
  if (const auto status = splitzip::frame_geometry({tensors, count}, checksums, frame, error); status != SPLITZIP_OK)
    return status;
  *sizes = {sizeof *sizes, frame.raw_bytes, frame.spill_offset, frame.spill_offset + 4 * frame.max_spill_words,
            frame.chunks,  frame.tiles};
  return SPLITZIP_OK;
}

splitzip_status splitzip_get_slot_words(const splitzip_tensor* tensor, uint32_t* slot_words, splitzip_error* error) {
  if (tensor == nullptr || slot_words == nullptr) {
    return fail(error, SPLITZIP_ERROR_INVALID_ARGUMENT, "tensor or slot_words is NULL");
  }
  splitzip::FrameGeometry frame;
  if (const auto status = splitzip::frame_geometry({tensor, 1}, true, frame, error); status != SPLITZIP_OK)
    return status;
  splitzip::FrameEntry entry;
  const auto status = splitzip::make_entry(*tensor, 0, entry, error);
  if (status == SPLITZIP_OK) *slot_words = entry.slot_words;
  return status;
}

splitzip_status splitzip_encode(const splitzip_tensor* tensors, const splitzip_layout* sources, size_t count,
                                const splitzip_encode_options* options, void* dst, size_t capacity, size_t* size,
                                splitzip_error* error) {
  if (dst == nullptr || size == nullptr || !has_size(options)) {
    return fail(error, SPLITZIP_ERROR_INVALID_ARGUMENT, "NULL, or a struct_size that is not that of this version");
  }
  if (const auto status = check_arrays(tensors, sources, count, error); status != SPLITZIP_OK) return status;
  const splitzip_encode_options& chosen = options == nullptr ? kDefaultOptions : *options;
  return splitzip::encode_frame({tensors, count}, {sources, count}, chosen, threads_of(chosen.workers),
                                {static_cast<std::uint8_t*>(dst), capacity}, *size, error);
}

splitzip_status splitzip_frame_get_size(const void* data, size_t size, uint64_t* frame_size) {
  if (data == nullptr || frame_size == nullptr) return SPLITZIP_ERROR_INVALID_ARGUMENT;
  splitzip::FrameHeader header;
  const auto status = splitzip::load_header(static_cast<const std::uint8_t*>(data), size, header, nullptr);
  if (status == SPLITZIP_OK) *frame_size = header.frame_bytes;
  return status;
}

splitzip_status splitzip_frame_open(const void* data, size_t size, const uint64_t* expected_nonce,
                                    splitzip_frame* frame, splitzip_error* error) {
  return open_frame(data, size, splitzip::FrameLength::kExact, expected_nonce, frame, error);
}

splitzip_status splitzip_frame_open_budget(const void* data, size_t budget, uint64_t expected_nonce,
                                           splitzip_frame* frame, splitzip_error* error) {
  return open_frame(data, budget, splitzip::FrameLength::kWithinBudget, &expected_nonce, frame, error);
}

splitzip_status splitzip_frame_get_tensor(const splitzip_frame* frame, size_t index, splitzip_tensor* tensor,
                                          uint64_t* codebook_hash) {
  if (frame == nullptr || tensor == nullptr || frame->struct_size != sizeof *frame || index >= frame->tensor_count) {
    return SPLITZIP_ERROR_INVALID_ARGUMENT;
  }
  const splitzip::FrameEntry entry =
      splitzip::load_entry(static_cast<const std::uint8_t*>(frame->data), static_cast<std::uint32_t>(index));
  *tensor = {sizeof *tensor,
             static_cast<splitzip_element_type>(entry.type),
             static_cast<splitzip_mode>(entry.mode),
             nullptr,
             entry.tensor_key,
             entry.first_block,
             entry.tokens,
             entry.tokens_per_unit,
             entry.channels,
             entry.first_channel,
             entry.ranges,
             entry.slot_words};
  if (codebook_hash != nullptr) *codebook_hash = entry.codebook_hash;
  return SPLITZIP_OK;
}

splitzip_status splitzip_decode(const splitzip_frame* frame, const splitzip_tensor* tensors,
                                const splitzip_layout* destinations, size_t count,
                                const splitzip_decode_options* options, splitzip_error* error) {
  if (frame == nullptr || !has_size(options)) {
    return fail(error, SPLITZIP_ERROR_INVALID_ARGUMENT, "NULL, or a struct_size that is not that of this version");
  }
  if (const auto status = check_arrays(tensors, destinations, count, error); status != SPLITZIP_OK) return status;
  return splitzip::decode_frame(*frame, {tensors, count}, {destinations, count},
                                threads_of(options == nullptr ? nullptr : options->workers), error);
}

splitzip_status splitzip_decode_unit(const splitzip_frame* frame, size_t index, const splitzip_tensor* tensor,
                                     uint64_t unit, uint32_t first_token, uint32_t token_count,
                                     const splitzip_layout* destination, splitzip_error* error) {
  if (frame == nullptr || index > UINT32_MAX)
    return fail(error, SPLITZIP_ERROR_INVALID_ARGUMENT, "frame is NULL or it has no such tensor");
  if (const auto status = check_arrays(tensor, destination, 1, error); status != SPLITZIP_OK) return status;
  return splitzip::decode_unit(*frame, *tensor, {static_cast<std::uint32_t>(index), unit, first_token, token_count},
                               *destination, error);
}
