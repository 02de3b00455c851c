// SPDX-License-Identifier: Apache-2.0
#include "cuda/table.hpp"

#include <algorithm>
#include <cstring>
#include <memory>
#include <new>

#include "codebook/codebook.hpp"
#include "common/error.hpp"
#include "cuda/decode_chunk.cuh"
#include "cuda/element.cuh"
#include "cuda/encode_chunk.cuh"
#include "format/geometry.hpp"

namespace splitzip::cuda {
namespace {

/// Tables of bases that go on for a chunk after each range have no more entries than this.
constexpr std::uint64_t kMaxWholeTable = 1u << 20;
/// No table has more.
constexpr std::uint64_t kMaxTable = 1u << 30;

/// Device memory that is filled on the host first.
class Image {
 public:
  /// Appends `count` objects, on a line of their own; returns where they lie.
  template <class T>
  std::size_t append(const T* objects, std::size_t count) {
    const std::size_t at = (bytes_.size() + 127) / 128 * 128;
    bytes_.resize(at + count * sizeof(T));
    std::memcpy(bytes_.data() + at, objects, count * sizeof(T));
    return at;
  }
  template <class T>
  T& at(std::size_t offset) {
    return *reinterpret_cast<T*>(bytes_.data() + offset);
  }
  const std::vector<std::uint8_t>& bytes() const { return bytes_; }

 private:
  std::vector<std::uint8_t> bytes_;
};

splitzip_status check_tensor(const splitzip_tensor& tensor, const splitzip_layout& layout, std::size_t index,
                             splitzip_error* error) {
  const Place where{.tensor = index};
  if (tensor.struct_size != sizeof tensor || layout.struct_size != sizeof layout) {
    return fail(error, SPLITZIP_ERROR_INVALID_ARGUMENT, "struct_size of a tensor or layout is not that of this version",
                where);
  }
  if (element_format(static_cast<std::uint32_t>(tensor.type)).bytes == 0)
    return fail(error, SPLITZIP_ERROR_UNSUPPORTED_TYPE, "unknown element type", where);
  if (!is_mode(static_cast<std::uint32_t>(tensor.mode)))
    return fail(error, SPLITZIP_ERROR_UNSUPPORTED_MODE, "unknown mode", where);
  const bool coded = tensor.mode != SPLITZIP_MODE_RAW;
  if (coded && tensor.codebook == nullptr)
    return fail(error, SPLITZIP_ERROR_CODEBOOK_REQUIRED, "this mode needs a codebook", where);
  if (coded && tensor.codebook->type != tensor.type) {
    return fail(error, SPLITZIP_ERROR_CODEBOOK_MISMATCH, "codebook is for another element type", where);
  }
  if (coded && !tensor.codebook->covers(tensor.first_channel + std::uint64_t{tensor.ranges} * tensor.channels)) {
    return fail(error, SPLITZIP_ERROR_CODEBOOK_MISMATCH, "tensor reaches beyond the channels of the codebook", where);
  }
  if (tensor.slot_words != SPLITZIP_SLOT_DEFAULT &&
      (tensor.slot_words > kMaxSlotWords || (!coded && tensor.slot_words != 0))) {
    return fail(error, SPLITZIP_ERROR_INVALID_TENSOR, "slot_words is above 1536, or not 0 in mode raw", where);
  }
  if (layout.page_indices != nullptr || layout.page_pointers != nullptr || layout.page_count != 0 ||
      layout.first_token != 0) {
    return fail(error, SPLITZIP_ERROR_INVALID_LAYOUT, "page lists come with the rows of a request, not with the table",
                where);
  }
  return SPLITZIP_OK;
}

EntryShape entry_shape(const splitzip_tensor& tensor) {
  EntryShape shape{tensor.tokens,
                   tensor.tokens_per_unit,
                   tensor.channels,
                   tensor.first_channel,
                   tensor.ranges,
                   0,
                   static_cast<std::uint32_t>(tensor.type),
                   static_cast<std::uint32_t>(tensor.mode)};
  if (tensor.mode != SPLITZIP_MODE_RAW) {
    shape.slot_words = tensor.slot_words != SPLITZIP_SLOT_DEFAULT
                           ? tensor.slot_words
                           : default_slot_words(shape, tensor.codebook->slot_words(shape.mode));
  }
  return shape;
}

bool aligned(std::uint64_t x) { return x % kVectorBytes == 0; }

/// Bases of a table that goes on for so many values after the channels of each range.
std::uint64_t table_size(const splitzip_tensor& tensor, std::uint32_t more) {
  return tensor.ranges * (std::uint64_t{tensor.channels} + more);
}
/// Whether there is room for a table of bases that goes on for a chunk after the channels of each range.
bool has_whole_table(const splitzip_tensor& tensor, std::uint32_t vector_values) {
  return table_size(tensor, kChunkVectors * vector_values) <= kMaxWholeTable;
}

Access choose_access(const splitzip_tensor& tensor, const splitzip_layout& layout) {
  const bool bf16 = tensor.type == SPLITZIP_BF16, raw = tensor.mode == SPLITZIP_MODE_RAW;
  if (raw && !bf16) return kAnywhere;
  const std::uint32_t vector_values = element_format(static_cast<std::uint32_t>(tensor.type)).values_per_vector();
  const bool whole = tensor.channels % vector_values == 0 && aligned(reinterpret_cast<std::uint64_t>(layout.base)) &&
                     aligned(static_cast<std::uint64_t>(layout.row_stride)) &&
                     (tensor.ranges == 1 || aligned(static_cast<std::uint64_t>(layout.range_stride))) &&
                     (layout.page_tokens == 0 || aligned(static_cast<std::uint64_t>(layout.page_stride)));
  if (whole && (raw || has_whole_table(tensor, vector_values))) return kAligned;
  return bf16 ? kValues : kAnywhere;
}

std::uint32_t choose_kernel(const TensorRecord& tensor) {
  if (tensor.type == SPLITZIP_BF16) {
    if (tensor.access != kAligned || tensor.mode == kRaw) return kGeneralKernel;
    return tensor.mode == kTiered ? kTieredKernel : kFixed4Kernel;
  }
  if (tensor.mode == kRaw) return kRawKernel;
  return (tensor.access == kAligned ? kAlignedKernel : kAnywhereKernel) + tensor.type;
}

/// Everything but addresses in device memory.
TensorRecord make_record(const splitzip_tensor& tensor, const splitzip_layout& layout, const EntryShape& shape,
                         std::uint32_t index) {
  TensorRecord record{};
  // No unit has more tokens than a request.
  const std::uint64_t unit_values =
      std::uint64_t{std::clamp(tensor.tokens, 1u, tensor.tokens_per_unit)} * tensor.channels;
  const ElementFormat format = element_format(shape.type);
  const std::uint32_t vector_values = format.values_per_vector();
  const std::uint64_t row_bytes = std::uint64_t{tensor.channels} * format.bytes;
  record.base = reinterpret_cast<std::uint64_t>(layout.base);
  record.row_stride = layout.row_stride;
  record.range_stride = layout.range_stride;
  record.page_stride = layout.page_stride;
  record.access = static_cast<std::uint8_t>(choose_access(tensor, layout));
  record.by_row = Divisor::of(record.access == kAligned ? tensor.channels / vector_values : tensor.channels);
  record.unit_vectors = static_cast<std::uint32_t>(divide_up(unit_values, vector_values));
  record.unit_padding = static_cast<std::uint32_t>(std::uint64_t{record.unit_vectors} * vector_values - unit_values);
  record.by_unit_chunks = Divisor::of(static_cast<std::uint32_t>(divide_up(record.unit_vectors, kChunkVectors)));
  record.by_ranges = Divisor::of(tensor.ranges);
  record.by_page_tokens = Divisor::of(std::max(layout.page_tokens, 1u));
  record.by_tokens_per_unit = Divisor::of(tensor.tokens_per_unit);
  record.tensor_key = tensor.tensor_key;
  record.seed = hash_u64(HashDomain::kTensorKey, tensor.tensor_key);
  record.first_channel = tensor.first_channel;
  record.channels = tensor.channels;
  record.ranges = tensor.ranges;
  record.tokens_per_unit = tensor.tokens_per_unit;
  record.max_tokens = std::min(tensor.tokens, UINT32_MAX - 1);  // the most that a Divisor divides
  record.default_slot = tensor.mode != SPLITZIP_MODE_RAW && tensor.slot_words == SPLITZIP_SLOT_DEFAULT;
  record.slot_words = record.default_slot != 0 ? tensor.codebook->slot_words(shape.mode) : shape.slot_words;
  record.index = index;
  record.type = static_cast<std::uint8_t>(tensor.type);
  record.mode = static_cast<std::uint8_t>(tensor.mode);
  record.paged = layout.page_tokens != 0;
  record.dense = layout.row_stride >= 0 && static_cast<std::uint64_t>(layout.row_stride) == row_bytes;
  if (record.access == kAligned && 32 % record.by_row.value == 0 && layout.row_stride >= 0) {
    const std::uint64_t step = 32 / record.by_row.value * static_cast<std::uint64_t>(layout.row_stride);
    record.step = step <= UINT32_MAX / (kChunkVectors / 32) ? static_cast<std::uint32_t>(step) : 0;
  }
  record.kernel = static_cast<std::uint8_t>(choose_kernel(record));
  record.value_bytes = format.bytes;
  record.vector_values = static_cast<std::uint8_t>(vector_values);
  record.piece_bytes = row_bytes % 4 == 0 ? 4 : row_bytes % 2 == 0 ? 2 : 1;
  record.planes = PlaneBytes::of(plane_set(format, shape.mode), shape.mode);
  if (tensor.mode != SPLITZIP_MODE_RAW) {
    const auto& ranks = tensor.codebook->ranks;
    record.codebook_hash = tensor.codebook->hash;
    record.base_bytes =
        static_cast<std::uint8_t>(with_element(shape.type, [](auto element) { return decltype(element)::kBaseBytes; }));
    record.whole_table = has_whole_table(tensor, vector_values);
    record.table_stride = tensor.channels + (record.whole_table != 0 ? kChunkVectors : 1) * vector_values;
    for (int k = 0; k < 3; ++k) {
      record.deltas[k] = static_cast<std::uint32_t>(ranks[3 * k] | ranks[3 * k + 1] << 8 | ranks[3 * k + 2] << 16);
    }
  }
  return record;
}

/// Bases of the channels of all ranges, each range's repeated as far as its table goes, as f(base) has them.
template <class F>
std::vector<std::uint8_t> make_base_table(const splitzip_tensor& tensor, const TensorRecord& record, F f) {
  const auto& bases = tensor.codebook->bases;
  std::vector<std::uint8_t> table;
  table.reserve(std::size_t{tensor.ranges} * record.table_stride * record.base_bytes);
  for (std::uint32_t range = 0; range < tensor.ranges; ++range) {
    for (std::uint32_t k = 0; k < record.table_stride; ++k) {
      const std::size_t channel = tensor.first_channel + std::size_t{range} * tensor.channels + k % tensor.channels;
      const std::uint32_t entry = f(std::uint32_t{bases[bases.size() == 1 ? 0 : channel]});
      for (std::uint32_t b = 0; b < record.base_bytes; ++b) table.push_back(static_cast<std::uint8_t>(entry >> 8 * b));
    }
  }
  return table;
}

splitzip_status create(const splitzip_tensor* tensors, const splitzip_layout* layouts, const std::uint32_t* row_lists,
                       std::size_t count, splitzip_cuda_table& table, splitzip_error* error) {
  // Check everything, and that a request with the most tokens is a frame.
  GeometryWalk walk;
  for (std::size_t i = 0; i < count; ++i) {
    if (const auto status = check_tensor(tensors[i], layouts[i], i, error); status != SPLITZIP_OK) return status;
    const char* message = "";
    if (const auto status = walk.count(entry_shape(tensors[i]), &message); status != SPLITZIP_OK) {
      return fail(error, status, message, {.tensor = i});
    }
    if (tensors[i].mode != SPLITZIP_MODE_RAW && table_size(tensors[i], kVectorBytes) > kMaxTable)
      return fail(error, SPLITZIP_ERROR_TOO_LARGE, "more than 2^30 bases", {.tensor = i});
    const std::uint32_t list = row_lists == nullptr ? 0 : row_lists[i];
    if (list >= count)
      return fail(error, SPLITZIP_ERROR_INVALID_ARGUMENT, "there are more row lists than tensors", {.tensor = i});
    table.list_count = std::max(table.list_count, list + 1);
  }

  // What the kernels read, in one piece.
  Image image;
  std::vector<TensorRecord> records(count);
  std::vector<std::uint32_t> pairs(kPairWords * count);
  const std::size_t records_at = image.append(records.data(), count);
  std::vector<std::size_t> encoding_at(count), decoding_at(count);
  for (std::size_t i = 0; i < count; ++i) {
    const EntryShape shape = entry_shape(tensors[i]);
    TensorRecord& record = records[i];
    record = make_record(tensors[i], layouts[i], shape, static_cast<std::uint32_t>(i));
    record.row_list = row_lists == nullptr ? 0 : row_lists[i];
    if (record.mode != kRaw) {
      for (std::uint32_t k = 0; k < 256; ++k) {
        pairs[kPairWords * i + k / 16 * kPairStride + k % 16] =
            make_pair_entry(tensors[i].codebook->ranks.data(), k / 16, k % 16);
      }
      with_element(record.type, [&](auto element) {
        using E = decltype(element);
        const auto encoding =
            make_base_table(tensors[i], record, [](auto base) { return E::encoding_base(0u - base); });
        const auto decoding = make_base_table(tensors[i], record, [](auto base) { return E::decoding_base(base); });
        encoding_at[i] = image.append(encoding.data(), encoding.size());
        decoding_at[i] = image.append(decoding.data(), decoding.size());
      });
    }
    table.has_kernel[record.kernel] = true;
    const std::uint32_t most = kTileChunks * record.planes.raw_words(kChunkVectors);
    const std::uint32_t least_slot = record.default_slot != 0 ? record.slot_words / 2 : record.slot_words;
    table.staging_words = std::max(table.staging_words, most - std::min(most, least_slot));
    table.shapes.push_back({tensors[i].tokens, tensors[i].tokens_per_unit, tensors[i].channels, tensors[i].ranges,
                            record.by_unit_chunks.value, kChunkVectors * record.vector_values});
  }
  SelectorTables selectors;
  for (std::uint32_t k = 0; k < 256; ++k)
    selectors.selector[k] = make_selector_entry(k), selectors.queue[k] = make_queue_entry(k);
  const std::size_t selectors_at = image.append(&selectors, 1), pairs_at = image.append(pairs.data(), pairs.size());

  // To the device, with addresses.
  int multiprocessors = 0;
  if (cudaGetDevice(&table.device) != cudaSuccess ||
      cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, table.device) != cudaSuccess ||
      !prepare_kernels(table.launches)) {
    return fail(error, SPLITZIP_ERROR_DEVICE, "there is no CUDA device that this library has kernels for");
  }
  table.multiprocessors = static_cast<std::uint32_t>(multiprocessors);
  if (cudaMalloc(&table.memory, image.bytes().size()) != cudaSuccess) {
    table.memory = nullptr;
    return fail(error, SPLITZIP_ERROR_OUT_OF_MEMORY, "no device memory for the table");
  }
  const auto address = reinterpret_cast<std::uint64_t>(table.memory);
  for (std::size_t i = 0; i < count; ++i) {
    records[i].encoding_bases = address + encoding_at[i], records[i].decoding_bases = address + decoding_at[i];
    image.at<TensorRecord>(records_at + i * sizeof(TensorRecord)) = records[i];
  }
  if (cudaMemcpy(table.memory, image.bytes().data(), image.bytes().size(), cudaMemcpyHostToDevice) != cudaSuccess) {
    return fail(error, SPLITZIP_ERROR_DEVICE, "the table could not be copied to the device");
  }
  table.tensors = reinterpret_cast<const TensorRecord*>(address + records_at);
  table.selector_tables = address + selectors_at, table.pair_tables = address + pairs_at;
  return SPLITZIP_OK;
}

}  // namespace
}  // namespace splitzip::cuda

splitzip_status splitzip_cuda_table_create(const splitzip_tensor* tensors, const splitzip_layout* layouts,
                                           const uint32_t* row_lists, size_t count, splitzip_cuda_table** table,
                                           splitzip_error* error) {
  using splitzip::fail;
  if (tensors == nullptr || layouts == nullptr || table == nullptr) {
    return fail(error, SPLITZIP_ERROR_INVALID_ARGUMENT, "tensors, layouts or table is NULL");
  }
  if (count == 0 || count > splitzip::kMaxEntries)
    return fail(error, SPLITZIP_ERROR_INVALID_ARGUMENT, "a table has 1 to 65,535 tensors");
  try {
    std::unique_ptr<splitzip_cuda_table, void (*)(splitzip_cuda_table*)> made(new splitzip_cuda_table,
                                                                              splitzip_cuda_table_destroy);
    const auto status = splitzip::cuda::create(tensors, layouts, row_lists, count, *made, error);
    if (status == SPLITZIP_OK) *table = made.release();
    return status;
  } catch (const std::bad_alloc&) {
    return fail(error, SPLITZIP_ERROR_OUT_OF_MEMORY, "no memory for the table");
  }
}

void splitzip_cuda_table_destroy(splitzip_cuda_table* table) {
  if (table == nullptr) return;
  if (table->memory != nullptr) {
    int current = 0;
    const bool other = cudaGetDevice(&current) == cudaSuccess && current != table->device;
    if (other) cudaSetDevice(table->device);
    cudaFree(table->memory);  // waits for the device
    if (other) cudaSetDevice(current);
  }
  delete table;
}
