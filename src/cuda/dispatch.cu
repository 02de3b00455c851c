// SPDX-License-Identifier: Apache-2.0
//
// Calls: arguments are checked, the workspace is laid out, kernels are launched.
#include <algorithm>
#include <cstring>
#include <string_view>

#include "cuda/finish_kernel.cuh"
#include "cuda/finish_short_kernel.cuh"
#include "cuda/kernels.hpp"
#include "cuda/plan_kernel.cuh"
#include "cuda/table.hpp"
#include "splitzip/version.h"

namespace splitzip::cuda {
namespace {

constexpr std::uint64_t kTooMany = kTilesWithoutPlace;  // tiles or entries

/// At most 2^60, whatever the operands, so that a few such numbers can be added.
std::uint64_t multiply(std::uint64_t a, std::uint64_t b) {
  constexpr std::uint64_t kMost = std::uint64_t{1} << 60;
  return b != 0 && a > kMost / b ? kMost : a * b;
}

/// No batch of so many requests and tokens has more tiles. kTooMany and more is too many.
std::uint64_t bound_tiles(const splitzip_cuda_table& table, std::uint32_t requests, std::uint64_t max_total_tokens) {
  std::uint64_t tiles = 0;
  for (const auto& shape : table.shapes) {
    const auto chunks = [&](std::uint64_t tokens, std::uint64_t parts) {
      // Two bounds for `tokens` tokens of `parts` requests: whole units, and units of which the last chunk may be short.
      const std::uint64_t units = tokens / shape.tokens_per_unit + std::min<std::uint64_t>(parts, tokens);
      const std::uint64_t full = multiply(tokens, shape.channels) / shape.chunk_values + 1;
      return multiply(shape.ranges, std::min(multiply(units, shape.unit_chunks), full + units));
    };
    const std::uint64_t each = multiply(requests, chunks(shape.max_tokens, 1) / kTileChunks + 1),
                        total = std::min(max_total_tokens, multiply(requests, shape.max_tokens)),
                        all = max_total_tokens == 0 ? each : chunks(total, requests) / kTileChunks + requests;
    tiles += std::min({each, all, kTooMany});
  }
  return std::min(tiles, kTooMany);
}

/// Pieces of the workspace, one after the other.
class Carving {
 public:
  template <class T>
  T* take(std::uint64_t base, std::uint64_t count, std::uint64_t size = sizeof(T)) {
    const std::uint64_t at = bytes_;
    bytes_ += (count * size + 255) / 256 * 256;
    return reinterpret_cast<T*>(base + at);
  }
  std::uint64_t bytes() const { return bytes_; }

 private:
  std::uint64_t bytes_ = 0;
};

/// Sets the addresses of the batch in a workspace, which need not be there; returns its length.
std::uint64_t lay_out(const splitzip_cuda_table& table, std::uint64_t frames, std::uint64_t tiles, bool decoding,
                      void* workspace, Batch& batch) {
  const auto base = reinterpret_cast<std::uint64_t>(workspace);
  const std::uint64_t entries = frames * table.shapes.size();
  Carving carving;
  batch.state = carving.take<BatchState>(base, 1);
  batch.frames = carving.take<FramePlan>(base, frames);
  batch.entries = carving.take<EntryPlan>(base, entries);
  batch.tile_entries = carving.take<std::uint32_t>(base, tiles);
  batch.tile_found = carving.take<Findings>(base, std::min<std::uint64_t>(tiles, kShortTiles));
  batch.far_sums = carving.take<Totals>(base, entries > kNearEntries ? entries : 0);
  batch.far_frames = carving.take<FrameSums>(base, frames > kNearFrames ? frames : 0);
  if (!decoding) {
    batch.group_sums = carving.take<std::uint32_t>(base, tiles / kGroupTiles + 1 + frames);
    batch.remainders = carving.take<std::uint32_t>(base, tiles);
    batch.staging = carving.take<std::uint32_t>(base, tiles, std::uint64_t{4} * table.staging_words);
  }
  return carving.bytes();
}

splitzip_status query(const splitzip_cuda_table* table, std::uint32_t requests, std::uint64_t max_total_tokens,
                      bool decoding, std::uint64_t* bytes) {
  if (table == nullptr || bytes == nullptr || requests == 0) return SPLITZIP_ERROR_INVALID_ARGUMENT;
  const std::uint64_t tiles = bound_tiles(*table, requests, max_total_tokens);
  if (tiles >= kTooMany || multiply(requests, table->shapes.size()) >= kTooMany) return SPLITZIP_ERROR_TOO_LARGE;
  Batch batch{};
  *bytes = lay_out(*table, requests, tiles, decoding, nullptr, batch);
  return SPLITZIP_OK;
}

/// Launches kernels one after another. Where they overlap, a kernel waits by itself for the one before.
struct Launcher {
  cudaStream_t stream;
  bool overlap;

  template <class... Parameters, class... Arguments>
  bool operator()(void (*kernel)(Parameters...), std::uint32_t blocks, std::uint32_t threads,
                  const Arguments&... arguments) const {
    cudaLaunchAttribute attribute{};
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(blocks);
    config.blockDim = dim3(threads);
    config.stream = stream;
    config.attrs = &attribute;
    config.numAttrs = overlap ? 1 : 0;
    return cudaLaunchKernelEx(&config, kernel, arguments...) == cudaSuccess;
  }
};

bool is_aligned(const void* address, std::size_t to) { return reinterpret_cast<std::uint64_t>(address) % to == 0; }

/// Checks the arguments of a call and lays its batch out in the workspace.
splitzip_status make_batch(const splitzip_cuda_table* table, const splitzip_cuda_batch* in, bool decoding,
                           Batch& batch) {
  if (table == nullptr || in == nullptr || in->struct_size != sizeof *in || in->requests == nullptr ||
      in->rows == nullptr || in->results == nullptr || in->failed == nullptr || in->workspace == nullptr ||
      in->request_count == 0 || !is_aligned(in->workspace, 256) ||
      !is_aligned(in->requests, alignof(splitzip_cuda_request)) || !is_aligned(in->rows, alignof(splitzip_cuda_rows)) ||
      !is_aligned(in->results, alignof(splitzip_cuda_result)) || !is_aligned(in->failed, alignof(std::uint32_t))) {
    return SPLITZIP_ERROR_INVALID_ARGUMENT;
  }
  const std::uint64_t tiles = bound_tiles(*table, in->request_count, in->max_total_tokens);
  const std::uint64_t entries = multiply(in->request_count, table->shapes.size());
  if (tiles >= kTooMany || entries >= kTooMany) return SPLITZIP_ERROR_TOO_LARGE;
  if (lay_out(*table, in->request_count, tiles, decoding, in->workspace, batch) > in->workspace_bytes)
    return SPLITZIP_ERROR_OUTPUT_TOO_SMALL;
  batch.tensors = table->tensors;
  batch.pair_tables = table->pair_tables, batch.selector_tables = table->selector_tables;
  batch.requests = in->requests, batch.rows = in->rows, batch.results = in->results, batch.failed = in->failed;
  batch.staging_words = table->staging_words;
  batch.frame_count = in->request_count;
  batch.tensor_count = static_cast<std::uint32_t>(table->shapes.size());
  batch.list_count = table->list_count;
  batch.tile_capacity = static_cast<std::uint32_t>(tiles);
  batch.checksums = in->checksums != 0, batch.budgets = in->budgets != 0, batch.decoding = decoding;
  batch.by_tensor_count = Divisor::of(batch.tensor_count);
  return SPLITZIP_OK;
}

/// Blocks that are launched for so much work, if so many are resident on a multiprocessor.
std::uint32_t count_blocks(const splitzip_cuda_table& table, const splitzip_cuda_batch& in, std::uint64_t wanted,
                           std::uint32_t on_each) {
  const std::uint32_t sms = in.max_sms != 0 ? std::min(in.max_sms, table.multiprocessors) : table.multiprocessors;
  return static_cast<std::uint32_t>(std::clamp<std::uint64_t>(wanted, 1, std::uint64_t{sms} * on_each));
}

bool launch_plan(const Launcher& launch, const splitzip_cuda_table& table, const splitzip_cuda_batch& in,
                 const Batch& batch) {
  const bool near = batch.frame_count <= kNearFrames && batch.frame_count * batch.tensor_count <= kNearEntries;
  return launch(plan_kernel, near ? count_blocks(table, in, kPlanBlocks, 1) : 1, kPlanThreads, batch);
}

/// Of the last kernel of a short call.
std::uint32_t count_last_blocks(const Batch& batch) {
  return batch.decoding != 0 ? 1 : (batch.tile_capacity + kTilesOfABlock - 1) / kTilesOfABlock;
}

/// Blocks that code the tiles of a call. In a short one they leave places free for those of the last kernel, which plan meanwhile.
std::uint32_t count_tile_blocks(const splitzip_cuda_table& table, const splitzip_cuda_batch& in, const Batch& batch,
                                const KernelTuning& tuning, bool short_call) {
  const std::uint32_t blocks = count_blocks(table, in, batch.tile_capacity, tuning.blocks);
  if (!short_call || !table.launches.overlap) return blocks;
  const std::uint32_t last = count_last_blocks(batch), all = count_blocks(table, in, UINT64_MAX, tuning.blocks);
  return std::min(blocks, all > last ? all - last : 1);
}

const KernelTuning* tuning_of_kernels(const Launches& launches, bool decoding, bool short_call) {
  if (short_call) return decoding ? launches.short_decode : launches.short_encode;
  return decoding ? launches.decode : launches.encode;
}

/// Whether the blocks begin with all tiles that there can be, and can plan them by themselves.
bool is_short(const splitzip_cuda_table& table, const splitzip_cuda_batch& in, const Batch& batch) {
  if (batch.budgets != 0 || batch.frame_count > kShortFrames ||
      std::uint64_t{batch.frame_count} * batch.tensor_count > kShortEntries || batch.tile_capacity > kShortTiles)
    return false;
  const KernelTuning* const tuning = tuning_of_kernels(table.launches, batch.decoding != 0, true);
  for (std::uint32_t k = 0; k < kKernels; ++k) {
    if (!table.has_kernel[k]) continue;
    if (k >= kShortKernels) return false;
    if (tuning[k].stages * count_tile_blocks(table, in, batch, tuning[k], true) < batch.tile_capacity) return false;
  }
  return true;
}

bool launch_finish(const Launcher& launch, const splitzip_cuda_table& table, const splitzip_cuda_batch& in,
                   const Batch& batch) {
  if (batch.short_call != 0) {
    const TileKernel kernel = batch.decoding != 0 ? finish_short_decode_kernel : finish_short_encode_kernel;
    return launch(kernel, count_last_blocks(batch), kFinishThreads, batch);
  }
  if (batch.decoding != 0) return launch(finish_decode_kernel, 1, kFinishThreads, batch);
  const std::uint32_t blocks = table.launches.finish_blocks;
  const std::uint64_t groups = batch.tile_capacity / kGroupTiles + std::uint64_t{batch.frame_count};
  const std::uint64_t sms = count_blocks(table, in, UINT64_MAX, 1);
  const auto parts = static_cast<std::uint32_t>(
      std::clamp<std::uint64_t>(sms * blocks / groups, 1, kGroupTiles / (kFinishThreads / 32)));
  return launch(finish_encode_kernel, count_blocks(table, in, groups * parts, blocks), kFinishThreads, batch,
                static_cast<std::uint32_t>(groups), parts);
}

splitzip_status run(const splitzip_cuda_table* table, const splitzip_cuda_batch* in, cudaStream_t stream,
                    bool decoding) {
  Batch batch{};
  const splitzip_status status = make_batch(table, in, decoding, batch);
  if (status != SPLITZIP_OK) return status;
  const Launches& launches = table->launches;
  const Launcher launch{stream, launches.overlap};
  const bool short_call = is_short(*table, *in, batch);
  batch.short_call = short_call;
  const KernelTuning* const tuning = tuning_of_kernels(launches, decoding, short_call);
  const auto blocks_of = [&](std::uint32_t k) { return count_tile_blocks(*table, *in, batch, tuning[k], short_call); };
  for (std::uint32_t k = 0; k < kKernels; ++k) {
    if (table->has_kernel[k]) batch.dealt_tiles = std::max(batch.dealt_tiles, tuning[k].stages * blocks_of(k));
  }
  batch.dealt_tiles = std::min(batch.dealt_tiles, batch.tile_capacity);
  bool ok = short_call || launch_plan(launch, *table, *in, batch);
  for (std::uint32_t k = 0; k < kKernels; ++k) {
    if (!table->has_kernel[k]) continue;
    const TileKernel kernel = decoding ? decode_kernel_of(k, short_call) : encode_kernel_of(k, short_call);
    ok = ok && launch(kernel, blocks_of(k), kBlockThreads, batch);
  }
  return ok && launch_finish(launch, *table, *in, batch) ? SPLITZIP_OK : SPLITZIP_ERROR_DEVICE;
}

/// The kernels between the two are the caller's, with the functions of device.cuh.
splitzip_status begin(const splitzip_cuda_table* table, const splitzip_cuda_batch* in, cudaStream_t stream,
                      bool decoding, void* view, std::size_t view_bytes, const char* version) {
  if (view == nullptr || version == nullptr) return SPLITZIP_ERROR_INVALID_ARGUMENT;
  if (view_bytes != sizeof(Batch) || std::string_view(version) != SPLITZIP_VERSION_STRING)
    return SPLITZIP_ERROR_UNSUPPORTED_VERSION;
  Batch batch{};
  const splitzip_status status = make_batch(table, in, decoding, batch);
  if (status != SPLITZIP_OK) return status;
  for (std::uint32_t k = 0; k < kKernels; ++k) {
    if (table->has_kernel[k] && (k == kGeneralKernel || k >= kRawKernel)) return SPLITZIP_ERROR_INVALID_LAYOUT;
  }
  std::memcpy(view, &batch, sizeof batch);
  const Launcher launch{stream, table->launches.overlap};
  return launch_plan(launch, *table, *in, batch) ? SPLITZIP_OK : SPLITZIP_ERROR_DEVICE;
}

splitzip_status end(const splitzip_cuda_table* table, const splitzip_cuda_batch* in, cudaStream_t stream,
                    bool decoding) {
  Batch batch{};
  const splitzip_status status = make_batch(table, in, decoding, batch);
  if (status != SPLITZIP_OK) return status;
  const Launcher launch{stream, table->launches.overlap};
  return launch_finish(launch, *table, *in, batch) ? SPLITZIP_OK : SPLITZIP_ERROR_DEVICE;
}

/// Divides the multiprocessor's memory so that as many blocks are resident as the kernel was made for, and the rest is cache. A device that runs the code
/// and has less gets fewer blocks. `percent` becomes the part that is shared, if it is less.
bool prepare(TileKernel kernel, KernelTuning& tuning, int& percent) {
  int device = 0, shared = 0, reserved = 0, resident = 0;  // bytes: of a multiprocessor; of each block, the system's
  cudaFuncAttributes attributes{};
  if (cudaGetDevice(&device) != cudaSuccess ||
      cudaDeviceGetAttribute(&shared, cudaDevAttrMaxSharedMemoryPerMultiprocessor, device) != cudaSuccess ||
      cudaDeviceGetAttribute(&reserved, cudaDevAttrReservedSharedMemoryPerBlock, device) != cudaSuccess ||
      cudaFuncGetAttributes(&attributes, kernel) != cudaSuccess) {
    return false;
  }
  const int needed = static_cast<int>(tuning.blocks) * (static_cast<int>(attributes.sharedSizeBytes) + reserved);
  const int own = std::min(100, (100 * needed + shared - 1) / shared);
  percent = std::max(percent, own);
  if (cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, own) != cudaSuccess ||
      cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, kernel, kBlockThreads, 0) != cudaSuccess) {
    return false;
  }
  tuning.blocks = std::clamp(static_cast<std::uint32_t>(resident), 1u, tuning.blocks);
  return true;
}

}  // namespace

bool find_tuning(Tuning& tuning) {
  // Not what the device is, but what the code was compiled for: the device may compile it again.
  cudaFuncAttributes attributes{};
  if (cudaFuncGetAttributes(&attributes, plan_kernel) != cudaSuccess) return false;
  tuning = tuning_of(10 * static_cast<std::uint32_t>(attributes.ptxVersion));
  return true;
}

bool prepare_kernels(Launches& launches) {
  Tuning tuning;
  if (!find_tuning(tuning)) return false;
  launches.overlap = tuning.overlap, launches.finish_blocks = tuning.finish_blocks;
  bool ok = true;
  int of_usual_kernels = 0, of_short_encoding = 0, of_short_decoding = 0, ignored = 0;
  for (std::uint32_t k = 0; k < kKernels; ++k) {
    launches.encode[k] = encode_tuning(k, false, tuning), launches.decode[k] = decode_tuning(k, false, tuning);
    int& percent = k < kGeneralKernel ? of_usual_kernels : ignored;
    ok = ok && prepare(encode_kernel_of(k, false), launches.encode[k], percent) &&
         prepare(decode_kernel_of(k, false), launches.decode[k], percent);
  }
  // A multiprocessor divides its memory anew only while it is empty: what runs beside tile kernels has to divide it as they do.
  const auto divide = [](auto* kernel, int percent) {
    return cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, percent) == cudaSuccess;
  };
  ok = ok && divide(plan_kernel, of_usual_kernels) && divide(finish_encode_kernel, of_usual_kernels) &&
       divide(finish_decode_kernel, of_usual_kernels);
  for (std::uint32_t k = 0; k < kShortKernels; ++k) {
    launches.short_encode[k] = encode_tuning(k, true, tuning),
    launches.short_decode[k] = decode_tuning(k, true, tuning);
    ok = ok && prepare(encode_kernel_of(k, true), launches.short_encode[k], of_short_encoding) &&
         prepare(decode_kernel_of(k, true), launches.short_decode[k], of_short_decoding);
  }
  return ok && divide(finish_short_encode_kernel, of_short_encoding) &&
         divide(finish_short_decode_kernel, of_short_decoding);
}

}  // namespace splitzip::cuda

splitzip_status splitzip_cuda_encode_workspace(const splitzip_cuda_table* table, uint32_t request_count,
                                               uint64_t max_total_tokens, uint64_t* bytes) {
  return splitzip::cuda::query(table, request_count, max_total_tokens, false, bytes);
}

splitzip_status splitzip_cuda_decode_workspace(const splitzip_cuda_table* table, uint32_t request_count,
                                               uint64_t max_total_tokens, uint64_t* bytes) {
  return splitzip::cuda::query(table, request_count, max_total_tokens, true, bytes);
}

splitzip_status splitzip_cuda_encode(const splitzip_cuda_table* table, const splitzip_cuda_batch* batch,
                                     struct CUstream_st* stream) {
  return splitzip::cuda::run(table, batch, stream, false);
}

splitzip_status splitzip_cuda_decode(const splitzip_cuda_table* table, const splitzip_cuda_batch* batch,
                                     struct CUstream_st* stream) {
  return splitzip::cuda::run(table, batch, stream, true);
}

splitzip_status splitzip_cuda_begin_encode(const splitzip_cuda_table* table, const splitzip_cuda_batch* batch,
                                           struct CUstream_st* stream, void* view, size_t view_bytes,
                                           const char* version) {
  return splitzip::cuda::begin(table, batch, stream, false, view, view_bytes, version);
}

splitzip_status splitzip_cuda_end_encode(const splitzip_cuda_table* table, const splitzip_cuda_batch* batch,
                                         struct CUstream_st* stream) {
  return splitzip::cuda::end(table, batch, stream, false);
}

splitzip_status splitzip_cuda_begin_decode(const splitzip_cuda_table* table, const splitzip_cuda_batch* batch,
                                           struct CUstream_st* stream, void* view, size_t view_bytes,
                                           const char* version) {
  return splitzip::cuda::begin(table, batch, stream, true, view, view_bytes, version);
}

splitzip_status splitzip_cuda_end_decode(const splitzip_cuda_table* table, const splitzip_cuda_batch* batch,
                                         struct CUstream_st* stream) {
  return splitzip::cuda::end(table, batch, stream, true);
}
