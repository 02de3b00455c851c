// SPDX-License-Identifier: Apache-2.0
//
// A batch in host memory and, byte for byte the same, in device memory: what the library makes of one on the CPU is what it has to make of
// the other on the GPU.
#pragma once

#include <algorithm>
#include <memory>
#include <optional>

#include "device.hpp"
#include "support/codebooks.hpp"

namespace splitzip::test {

enum class Content { kKv, kOutliers, kNoise, kConstant, kClusters };

struct TensorSpec {
  splitzip_element_type type = SPLITZIP_BF16;
  splitzip_mode mode = SPLITZIP_MODE_TIERED;
  std::uint32_t channels = 64;
  std::uint32_t ranges = 1;
  std::uint32_t first_channel = 0;
  std::uint32_t tokens_per_unit = 0;  // 0: all tokens
  std::uint32_t slot_words = SPLITZIP_SLOT_DEFAULT;
  std::uint32_t gap = 0;  // bytes between rows
  bool range_major = false;
  Content content = Content::kKv;
};

struct BatchSpec {
  std::vector<TensorSpec> tensors = {TensorSpec{}};
  std::vector<std::uint32_t> tokens = {100};  // of each request
  std::uint32_t page_tokens = 0;
  bool page_pointers = false;
  std::uint32_t first_token = 0;
  std::uint32_t shift = 0;  // of the base, in bytes
  bool checksums = true;
  std::uint32_t max_sms = 0;
  bool pinned_frames = false;
  std::uint64_t seed = 1;
  std::vector<std::uint32_t> row_lists = {};  // of each tensor; none: one list
};

inline Bytes make_content(splitzip_element_type type, Content content, std::uint64_t tokens, std::uint32_t channels,
                          std::uint64_t seed) {
  const std::uint32_t bytes = element(type).bytes;
  Bytes values = kv_like(type, tokens, channels, seed, content == Content::kOutliers ? 20 : 300);
  if (content == Content::kNoise) return noise(values.size(), seed);
  if (content == Content::kConstant) return repeat(0xFEDC1234, bytes, values.size() / bytes);
  if (content == Content::kClusters) {  // escapes in some channels, in some rows, and stretches of equal values
    const Bytes any = noise(values.size(), seed);
    for (std::uint64_t i = 0; i < values.size(); ++i) {
      const std::uint64_t token = i / bytes / channels, channel = i / bytes % channels;
      if (channel % 50 == 7 || token % 60 == 5) values[i] = any[i];
      if (token % 100 > 80) values[i] = i % bytes == 0 ? 0x55 : 0x66;
    }
  }
  return values;
}

/// The tensors' memory is one pool: for each request and tensor a region, or pages of all requests in random order.
class BatchPair {
 public:
  explicit BatchPair(const BatchSpec& spec) : spec_(spec), random_(spec.seed) {
    place();
    fill();
    device_pool_.emplace(pool_.size());
    device_pool_->upload(pool_.data(), pool_.size());
  }

  std::size_t requests() const { return spec_.tokens.size(); }
  const Bytes& pool() const { return pool_; }
  std::vector<splitzip_tensor>& tensors() { return tensors_; }
  const std::vector<splitzip_tensor>& tensors() const { return tensors_; }

  /// Tensors and layouts of one request for the CPU, in `pool`.
  splitzip_tensor tensor(std::size_t request, std::size_t index) const {
    splitzip_tensor tensor = tensors_[index];
    tensor.tokens = spec_.tokens[request];
    tensor.first_block = first_block(request);
    return tensor;
  }
  splitzip_layout layout(Bytes& pool, std::size_t request, std::size_t index) {
    splitzip_layout layout = layouts_[index];
    if (spec_.page_tokens == 0) {
      layout.base = place_in(pool.data(), offsets_[index] + request * region_);
    } else {
      // Pages as the device sees them, through pointers.
      auto& pointers = host_pages_.emplace_back();
      for (const std::int32_t page : pages_[request]) {
        pointers.push_back(place_in(pool.data(), offsets_[index] + static_cast<std::size_t>(page) * region_));
      }
      layout.page_pointers = pointers.data();
      layout.page_count = pointers.size();
      layout.first_token = spec_.first_token;
    }
    return layout;
  }

  Bytes encode_on_cpu(std::size_t request) {
    Bytes frame(bound(request));
    std::size_t size = 0;
    EXPECT_EQ(encode(request, frame, false, size), SPLITZIP_OK);
    frame.resize(size);
    return frame;
  }
  std::vector<Bytes> encode_all_on_cpu() {
    std::vector<Bytes> frames;
    for (std::size_t r = 0; r < requests(); ++r) frames.push_back(encode_on_cpu(r));
    return frames;
  }
  /// The size of `to` is the budget.
  splitzip_status encode_in_budget(std::size_t request, Bytes& to) {
    std::size_t size = 0;
    return encode(request, to, true, size);
  }

  std::uint64_t bound(std::size_t request) const { return sizes(request).bound_bytes; }
  std::uint64_t known(std::size_t request) const { return sizes(request).known_bytes; }

  /// 1 for each byte of the pool that is one of a value.
  Bytes value_bytes() {
    Bytes mask(pool_.size(), 0);
    for (std::size_t r = 0; r < requests(); ++r) mark_values(r, mask);
    return mask;
  }
  /// The same of one request.
  void mark_values(std::size_t request, Bytes& mask) {
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
      for (std::uint32_t t = 0; t < spec_.tokens[request]; ++t) {
        for (std::uint32_t range = 0; range < spec_.tensors[i].ranges; ++range) {
          std::fill_n(mask.data() + (row_of(request, i, t, range) - pool_.data()), row_bytes(spec_.tensors[i]),
                      std::uint8_t{1});
        }
      }
    }
  }
  /// Bytes of the pool that one request has, if there are no pages.
  std::size_t region() const { return region_; }

  static std::uint64_t nonce(std::size_t request) { return 0xC0FFEE0000000000u + request; }
  static std::uint64_t first_block(std::size_t request) { return 0xFFFFFFF0u + 3 * request; }

  // ---- the device's side

  DeviceBytes& device_pool() { return *device_pool_; }
  /// The table of the tensors with their memory in `pool`.
  splitzip_cuda_table* make_table(std::uint8_t* pool) {
    std::vector<splitzip_layout> layouts = layouts_;
    for (std::size_t i = 0; i < layouts.size(); ++i) {
      // With page pointers the base is an offset inside of the pages.
      layouts[i].base = place_in(spec_.page_pointers ? nullptr : pool, offsets_[i]);
    }
    splitzip_cuda_table* table = nullptr;
    splitzip_error error = SPLITZIP_ERROR_INIT;
    EXPECT_EQ(splitzip_cuda_table_create(tensors_.data(), layouts.data(),
                                         spec_.row_lists.empty() ? nullptr : spec_.row_lists.data(), tensors_.size(),
                                         &table, &error),
              SPLITZIP_OK)
        << error.message;
    return table;
  }
  /// Rows of the requests; page lists point to memory that lives as long as this object.
  std::vector<splitzip_cuda_rows> make_rows(std::uint8_t* pool) {
    std::vector<splitzip_cuda_rows> rows(requests());
    for (std::size_t r = 0; r < requests(); ++r) {
      rows[r].tokens = spec_.tokens[r];
      rows[r].first_block = first_block(r);
      if (spec_.page_tokens == 0) {
        rows[r].offset = static_cast<std::int64_t>(r * region_);
        continue;
      }
      rows[r].first_token = spec_.first_token;
      rows[r].page_count = pages_[r].size();
      if (spec_.page_pointers) {
        std::vector<const void*> pointers;
        for (const std::int32_t page : pages_[r])
          pointers.push_back(place_in(pool, static_cast<std::size_t>(page) * region_));
        rows[r].page_pointers = device_lists_.emplace_back(on_device(pointers)).as<void*>();
      } else {
        rows[r].page_indices = device_lists_.emplace_back(on_device(pages_[r])).as<std::int32_t>();
      }
    }
    return rows;
  }

 private:
  splitzip_encode_options options(std::size_t request) const {
    splitzip_encode_options options = SPLITZIP_ENCODE_OPTIONS_INIT;
    options.nonce = nonce(request);
    options.checksums = spec_.checksums;
    return options;
  }
  splitzip_frame_sizes sizes(std::size_t request) const {
    std::vector<splitzip_tensor> tensors;
    for (std::size_t i = 0; i < tensors_.size(); ++i) tensors.push_back(tensor(request, i));
    const splitzip_encode_options chosen = options(request);
    splitzip_frame_sizes sizes{};
    sizes.struct_size = sizeof sizes;
    EXPECT_EQ(splitzip_get_frame_sizes(tensors.data(), tensors.size(), &chosen, &sizes, nullptr), SPLITZIP_OK);
    return sizes;
  }
  splitzip_status encode(std::size_t request, Bytes& to, bool budget, std::size_t& size) {
    std::vector<splitzip_tensor> tensors;
    std::vector<splitzip_layout> layouts;
    host_pages_.reserve(2 * tensors_.size() + host_pages_.size());
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
      tensors.push_back(tensor(request, i));
      layouts.push_back(layout(pool_, request, i));
    }
    splitzip_encode_options chosen = options(request);
    chosen.budget = budget;
    std::uint8_t nothing = 0;
    return splitzip_encode(tensors.data(), layouts.data(), tensors.size(), &chosen, to.empty() ? &nothing : to.data(),
                           to.size(), &size, nullptr);
  }

  /// In memory that need not be there.
  static void* place_in(const std::uint8_t* pool, std::size_t offset) {
    return reinterpret_cast<void*>(reinterpret_cast<std::uint64_t>(pool) + offset);
  }

  /// Of one range.
  static std::uint32_t row_bytes(const TensorSpec& spec) { return spec.channels * element(spec.type).bytes; }

  void place() {
    std::uint32_t most = 1;
    for (const std::uint32_t tokens : spec_.tokens) most = std::max(most, tokens);
    const std::uint32_t rows = spec_.page_tokens == 0 ? most + spec_.first_token : spec_.page_tokens;
    std::size_t end = 0;
    for (const TensorSpec& spec : spec_.tensors) {
      const std::uint32_t row = spec.ranges * spec.channels;
      codebooks_.push_back(std::make_unique<splitzip_codebook>(kv_codebook(spec.type, spec.first_channel + row)));
      splitzip_tensor tensor = splitzip_tensor_contiguous(
          spec.type, spec.mode, spec.mode == SPLITZIP_MODE_RAW ? nullptr : codebooks_.back().get(), most,
          spec.channels);
      tensor.ranges = spec.ranges;
      tensor.first_channel = spec.first_channel;
      if (spec.tokens_per_unit != 0) tensor.tokens_per_unit = spec.tokens_per_unit;
      tensor.slot_words = spec.mode == SPLITZIP_MODE_RAW ? 0 : spec.slot_words;
      tensor.tensor_key = random_.next();
      tensors_.push_back(tensor);

      splitzip_layout layout = splitzip_layout_contiguous(nullptr, &tensor);
      layout.row_stride += spec.gap;
      if (spec.range_major) {
        layout.row_stride = row_bytes(spec) + spec.gap;
        layout.range_stride = layout.row_stride * rows;
      }
      layout.page_tokens = spec_.page_tokens;
      layouts_.push_back(layout);
      offsets_.push_back(end + spec_.shift);
      end += (std::size_t{rows} * spec.ranges * (row_bytes(spec) + spec.gap) + spec_.shift + 15) / 16 * 16 + 16;
    }
    region_ = end;

    std::size_t regions = requests();
    if (spec_.page_tokens != 0) {
      std::vector<std::int32_t> order;
      pages_.resize(requests());
      for (std::size_t r = 0; r < requests(); ++r) {
        pages_[r].resize((spec_.first_token + spec_.tokens[r] + spec_.page_tokens - 1) / spec_.page_tokens);
        for (std::size_t p = 0; p < pages_[r].size(); ++p) order.push_back(static_cast<std::int32_t>(order.size()));
      }
      regions = order.size() + 1;  // one that no one has
      for (std::size_t i = order.size(); i > 1; --i)
        std::swap(order[i - 1], order[random_.below(static_cast<std::uint32_t>(i))]);
      std::size_t next = 0;
      for (auto& pages : pages_) {
        for (auto& page : pages) page = order[next++];
      }
      for (auto& layout : layouts_) layout.page_stride = static_cast<std::int64_t>(region_);
    }
    pool_.assign(regions * region_, kPoison);
  }

  void fill() {
    for (std::size_t r = 0; r < requests(); ++r) {
      for (std::size_t i = 0; i < tensors_.size(); ++i) {
        const TensorSpec& spec = spec_.tensors[i];
        const std::uint32_t row = spec.ranges * spec.channels;
        const Bytes values = make_content(spec.type, spec.content, spec_.tokens[r], row, random_.next());
        const std::uint32_t bytes = row_bytes(spec);
        for (std::uint32_t t = 0; t < spec_.tokens[r]; ++t) {
          for (std::uint32_t range = 0; range < spec.ranges; ++range) {
            std::copy_n(values.data() + (std::size_t{t} * spec.ranges + range) * bytes, bytes, row_of(r, i, t, range));
          }
        }
      }
    }
  }
  std::uint8_t* row_of(std::size_t request, std::size_t index, std::uint32_t token, std::uint32_t range) {
    std::size_t region = request, row = token + spec_.first_token;
    if (spec_.page_tokens != 0) {
      region = static_cast<std::size_t>(pages_[request][row / spec_.page_tokens]);
      row %= spec_.page_tokens;
    } else {
      row = token;
    }
    return pool_.data() + region * region_ + offsets_[index] +
           row * static_cast<std::size_t>(layouts_[index].row_stride) +
           range * static_cast<std::size_t>(layouts_[index].range_stride);
  }

  BatchSpec spec_;
  Random random_;
  std::vector<std::unique_ptr<splitzip_codebook>> codebooks_;
  std::vector<splitzip_tensor> tensors_;
  std::vector<splitzip_layout> layouts_;
  std::vector<std::size_t> offsets_;
  std::size_t region_ = 0;
  std::vector<std::vector<std::int32_t>> pages_;
  std::vector<std::vector<void*>> host_pages_;
  Bytes pool_;
  std::optional<DeviceBytes> device_pool_;
  std::vector<DeviceBytes> device_lists_;
};

struct DestroyTable {
  void operator()(splitzip_cuda_table* table) const { splitzip_cuda_table_destroy(table); }
};
using Table = std::unique_ptr<splitzip_cuda_table, DestroyTable>;

/// One call with all that it needs in device memory: frames that end where their capacity ends, with poison behind.
class Call {
 public:
  static constexpr std::size_t kGuard = 256;

  Call(const std::vector<splitzip_cuda_rows>& rows, std::vector<std::uint64_t> capacities, const BatchSpec& spec,
       const splitzip_cuda_table* table)
      : table_(table),
        capacities_(std::move(capacities)),
        rows_(on_device(rows)),
        requests_memory_(capacities_.size() * sizeof(splitzip_cuda_request)),
        results_(capacities_.size() * sizeof(splitzip_cuda_result), true),
        failed_(sizeof(std::uint32_t), true),
        frames_(place(), spec.pinned_frames) {
    for (std::size_t r = 0; r < capacities_.size(); ++r) {
      requests_.push_back({frames_.data() + offsets_[r], capacities_[r], BatchPair::nonce(r)});
    }
    std::uint64_t encode = 0, decode = 0;
    const auto count = static_cast<std::uint32_t>(capacities_.size());
    EXPECT_EQ(splitzip_cuda_encode_workspace(table, count, 0, &encode), SPLITZIP_OK);
    EXPECT_EQ(splitzip_cuda_decode_workspace(table, count, 0, &decode), SPLITZIP_OK);
    workspace_.emplace(std::max(encode, decode));
    batch_ = SPLITZIP_CUDA_BATCH_INIT;
    batch_.requests = requests_memory_.as<splitzip_cuda_request>();
    batch_.rows = rows_.as<splitzip_cuda_rows>();
    batch_.results = results_.as<splitzip_cuda_result>();
    batch_.failed = failed_.as<std::uint32_t>();
    batch_.workspace = workspace_->data();
    batch_.workspace_bytes = workspace_->size();
    batch_.request_count = count;
    batch_.max_sms = spec.max_sms;
    batch_.checksums = spec.checksums;
  }

  splitzip_cuda_batch& batch() { return batch_; }
  std::vector<splitzip_cuda_request>& requests() { return requests_; }
  DeviceBytes& frames() { return frames_; }
  DeviceBytes& rows() { return rows_; }
  DeviceBytes& workspace() { return *workspace_; }

  void upload_requests() { requests_memory_.upload(requests_.data(), requests_.size() * sizeof requests_[0]); }
  void encode(cudaStream_t stream = nullptr) {
    upload_requests();
    ASSERT_EQ(splitzip_cuda_encode(table_, &batch_, stream), SPLITZIP_OK);
    check_cuda(cudaStreamSynchronize(stream));
  }
  /// Decodes frames of these lengths.
  void decode(const splitzip_cuda_table* table, const std::vector<std::uint64_t>& sizes,
              cudaStream_t stream = nullptr) {
    for (std::size_t r = 0; r < sizes.size(); ++r) requests_[r].capacity = sizes[r];
    upload_requests();
    ASSERT_EQ(splitzip_cuda_decode(table, &batch_, stream), SPLITZIP_OK);
    check_cuda(cudaStreamSynchronize(stream));
  }
  splitzip_cuda_result result(std::size_t r) const { return results_.as<splitzip_cuda_result>()[r]; }
  std::uint32_t failed() const { return *failed_.as<std::uint32_t>(); }
  void set_frame(std::size_t r, const Bytes& frame) { frames_.upload(frame.data(), frame.size(), offsets_[r]); }
  Bytes frame(std::size_t r) const {
    Bytes bytes(result(r).frame_bytes);
    check_cuda(cudaMemcpy(bytes.data(), frames_.data() + offsets_[r], bytes.size(), cudaMemcpyDefault));
    return bytes;
  }
  Bytes capacity_bytes(std::size_t r) const {
    Bytes bytes(capacities_[r]);
    check_cuda(cudaMemcpy(bytes.data(), frames_.data() + offsets_[r], bytes.size(), cudaMemcpyDefault));
    return bytes;
  }
  /// What lies behind the frame's capacity was not touched.
  bool guard_is_whole(std::size_t r) const {
    Bytes guard(kGuard);
    check_cuda(cudaMemcpy(guard.data(), frames_.data() + offsets_[r] + capacities_[r], kGuard, cudaMemcpyDefault));
    return std::all_of(guard.begin(), guard.end(), [](std::uint8_t b) { return b == kPoison; });
  }

 private:
  std::size_t place() {
    std::size_t end = 0;
    for (const std::uint64_t capacity : capacities_) {
      offsets_.push_back(end);
      end += (capacity + kGuard + 15) / 16 * 16;
    }
    return end;
  }

  const splitzip_cuda_table* table_;
  std::vector<std::uint64_t> capacities_;
  std::vector<std::size_t> offsets_;
  std::vector<splitzip_cuda_request> requests_;
  DeviceBytes rows_, requests_memory_, results_, failed_, frames_;
  std::optional<DeviceBytes> workspace_;
  splitzip_cuda_batch batch_{};
};

inline std::vector<std::uint64_t> sizes_of(const std::vector<Bytes>& frames) {
  std::vector<std::uint64_t> sizes;
  for (const Bytes& frame : frames) sizes.push_back(frame.size());
  return sizes;
}

/// Encodes and decodes the batch on both sides and compares every byte: frames, what lies around them, destinations and what lies around those.
inline void expect_equal(const BatchSpec& spec) {
  if (is_left_out()) return;
  BatchPair pair(spec);
  const Table table(pair.make_table(pair.device_pool().data()));
  ASSERT_NE(table, nullptr);
  const std::vector<Bytes> frames = pair.encode_all_on_cpu();
  const std::vector<std::uint64_t> sizes = sizes_of(frames);
  Call call(pair.make_rows(pair.device_pool().data()), sizes, spec, table.get());  // frames that just fit
  call.encode();
  EXPECT_EQ(call.failed(), 0u);
  for (std::size_t r = 0; r < pair.requests(); ++r) {
    ASSERT_EQ(call.result(r).status, SPLITZIP_OK) << "request " << r;
    ASSERT_EQ(call.result(r).frame_bytes, sizes[r]) << "request " << r;
    const Bytes frame = call.frame(r);
    const auto [a, b] = std::mismatch(frame.begin(), frame.end(), frames[r].begin());
    ASSERT_TRUE(a == frame.end()) << "request " << r << ": byte " << a - frame.begin() << " of " << frame.size();
    EXPECT_TRUE(call.guard_is_whole(r)) << "request " << r;
  }
  EXPECT_EQ(pair.device_pool().download(), pair.pool()) << "the source has changed";

  DeviceBytes destination(pair.pool().size());
  const Table to(pair.make_table(destination.data()));
  Call back(pair.make_rows(destination.data()), sizes, spec, to.get());
  for (std::size_t r = 0; r < pair.requests(); ++r) back.set_frame(r, frames[r]);
  back.decode(to.get(), sizes);
  EXPECT_EQ(back.failed(), 0u);
  for (std::size_t r = 0; r < pair.requests(); ++r) ASSERT_EQ(back.result(r).status, SPLITZIP_OK) << "request " << r;
  const Bytes got = destination.download();
  const auto [a, b] = std::mismatch(got.begin(), got.end(), pair.pool().begin());
  ASSERT_TRUE(a == got.end()) << "byte " << a - got.begin() << " of the pool";
}

}  // namespace splitzip::test
