// SPDX-License-Identifier: Apache-2.0
//
// Where the values of a chunk are: gather for encoding, scatter for decoding.
//
// Lane l of a warp owns the vectors 32 i + l, i = 0..3, of its chunk. ChunkRows loads and stores them, and gives their channel
// bases, 16 bytes a vector.
#pragma once

#include <type_traits>

#include "cuda/tile.cuh"

namespace splitzip::cuda {

// A chunk whose values lie in one piece, every vector 16-byte aligned.
class LinearRows {
 public:
  static constexpr bool kWholeVectors = true;

  __device__ __forceinline__ LinearRows(const ChunkJob& job, uint32_t lane)
      : source_(ptx::keep(job.source + kVectorBytes * lane)), bases_(ptx::keep(job.bases + kVectorBytes * lane)) {}
  __device__ __forceinline__ uint4 load(uint32_t i) const { return ptx::load_16(source_ + 512 * i); }
  __device__ __forceinline__ void store(uint32_t i, uint4 w) const { ptx::store_16(source_ + 512 * i, w); }
  __device__ __forceinline__ uint32_t value(uint32_t i, uint32_t k) const {
    return ptx::load_2(source_ + 512 * i + 2 * k);
  }
  __device__ __forceinline__ uint4 bases(uint32_t i) const { return ptx::load_16(bases_ + 512 * i); }
  __device__ __forceinline__ uint32_t base(uint32_t i, uint32_t k) const {
    return ptx::load_2_constant(bases_ + 512 * i + 2 * k);
  }
  __device__ __forceinline__ uint32_t values_in(uint32_t) const { return kVectorValues; }

 private:
  uint64_t source_, bases_;
};

// A chunk whose rows lie a stride apart, and each lane's vectors a step.
class SteppedRows {
 public:
  static constexpr bool kWholeVectors = true;

  __device__ __forceinline__ SteppedRows(const TileJob& tile, const ChunkJob& job, uint32_t lane)
      : tile_(tile), job_(job), lane_(lane) {
    const uint32_t x = job.first + lane, row = tile.tensor.by_row.divide(x);
    offset_ = ptx::keep(row * static_cast<uint32_t>(tile.tensor.row_stride) +
                        kVectorBytes * (x - row * tile.tensor.by_row.value));
  }
  __device__ __forceinline__ uint4 load(uint32_t i) const { return ptx::load_16(address(i)); }
  __device__ __forceinline__ void store(uint32_t i, uint4 w) const { ptx::store_16(address(i), w); }
  __device__ __forceinline__ uint32_t value(uint32_t i, uint32_t k) const { return ptx::load_2(address(i) + 2 * k); }
  __device__ __forceinline__ uint4 bases(uint32_t i) const { return ptx::load_16(base_address(i)); }
  __device__ __forceinline__ uint32_t base(uint32_t i, uint32_t k) const {
    return ptx::load_2_constant(base_address(i) + 2 * k);
  }
  __device__ __forceinline__ uint32_t values_in(uint32_t) const { return kVectorValues; }

 private:
  // What is the chunk's is loaded from its job each time, rather than kept in registers.
  static __device__ __forceinline__ uint64_t load_word(const uint64_t& word) {
    const uint2 x = ptx::load_shared_8(ptx::shared_address(&word));
    return uint64_t{x.y} << 32 | x.x;
  }
  __device__ __forceinline__ uint64_t address(uint32_t i) const {
    return load_word(job_.source) + (offset_ + ptx::load_shared(ptx::shared_address(&tile_.tensor.step)) * i);
  }
  __device__ __forceinline__ uint64_t base_address(uint32_t i) const {
    return load_word(job_.bases) + kVectorBytes * lane_ + 512 * i;
  }

  const TileJob& tile_;
  const ChunkJob& job_;
  uint32_t lane_, offset_;
};

template <uint32_t kAccess>
class ChunkRows;

// Every vector lies in one row, 16-byte aligned.
template <>
class ChunkRows<kAligned> {
 public:
  static constexpr bool kWholeVectors = true;

  __device__ __forceinline__ ChunkRows(const TileJob& tile, const ChunkJob& job, uint32_t lane)
      : tile_(tile), job_(job), lane_(lane) {}
  // The same values, if the chunk is linear, or stepped.
  __device__ __forceinline__ LinearRows linear() const { return LinearRows(job_, lane_); }
  __device__ __forceinline__ SteppedRows stepped() const { return SteppedRows(tile_, job_, lane_); }
  __device__ __forceinline__ uint4 load(uint32_t i) const { return ptx::load_16(address(i)); }
  __device__ __forceinline__ void store(uint32_t i, uint4 w) const { ptx::store_16(address(i), w); }
  __device__ __forceinline__ uint32_t value(uint32_t i, uint32_t k) const { return ptx::load_2(address(i) + 2 * k); }
  __device__ __forceinline__ uint4 bases(uint32_t i) const {
    return ptx::load_16(job_.bases + kVectorBytes * lane_ + 512 * i);
  }
  __device__ __forceinline__ uint32_t base(uint32_t i, uint32_t k) const {
    return ptx::load_2_constant(job_.bases + kVectorBytes * lane_ + 512 * i + 2 * k);
  }
  __device__ __forceinline__ uint32_t values_in(uint32_t) const { return kVectorValues; }
  __device__ __forceinline__ uint64_t address(uint32_t i) const {
    if (job_.linear != 0) return job_.source + kVectorBytes * lane_ + 512 * i;
    const TensorRecord& tensor = tile_.tensor;
    const uint32_t x = job_.first + 32 * i + lane_, token = tensor.by_row.divide(x);
    const uint64_t row =
        job_.strided != 0 ? static_cast<uint64_t>(token * tensor.row_stride) : row_address(tile_, job_.row + token);
    return row + job_.source + kVectorBytes * (x - token * tensor.by_row.value);
  }

 private:
  const TileJob& tile_;
  const ChunkJob& job_;
  uint32_t lane_;
};

// Value by value.
template <>
class ChunkRows<kValues> {
 public:
  static constexpr bool kWholeVectors = false;

  __device__ __forceinline__ ChunkRows(const TileJob& tile, const ChunkJob& job, uint32_t lane)
      : tile_(tile), job_(job), lane_(lane) {}
  __device__ __forceinline__ uint4 load(uint32_t i) const {
    Halves values{0, 0};
    for_each_value(i, [&](uint32_t k, uint64_t address, uint32_t) { values.insert(k, load_value(address)); });
    return values.words();
  }
  __device__ __forceinline__ void store(uint32_t i, uint4 w) const {
    const Halves values{uint64_t{w.y} << 32 | w.x, uint64_t{w.w} << 32 | w.z};
    for_each_value(i, [&](uint32_t k, uint64_t address, uint32_t) {
      const uint32_t x = values[k];
      if (address % 2 == 0) {
        ptx::store_2(address, x);
      } else {
        ptx::store_1(address, x & 0xff);
        ptx::store_1(address + 1, x >> 8);
      }
    });
  }
  __device__ __forceinline__ uint32_t value(uint32_t i, uint32_t k) const {
    const uint64_t n = first_value(i) + k;
    const auto token = static_cast<uint32_t>(n / tile_.tensor.channels);
    return load_value(row_address(tile_, job_.row + token) + job_.source +
                      2 * (n - uint64_t{token} * tile_.tensor.channels));
  }
  // Padding values, which are zero, get the base that makes code 0 of them.
  __device__ __forceinline__ uint4 bases(uint32_t i) const {
    Halves bases{0, 0};
    for (uint32_t k = 0; k < kVectorValues; ++k) bases.insert(k, tile_.padding_bases & 0xffff);
    for_each_value(i, [&](uint32_t k, uint64_t, uint32_t channel) {
      bases.insert(k, bases[k] ^ ptx::load_2_constant(job_.bases + 2 * uint64_t{channel}));
    });
    return bases.words();
  }
  __device__ __forceinline__ uint32_t base(uint32_t i, uint32_t k) const {
    return ptx::load_2_constant(job_.bases + 2 * ((first_value(i) + k) % tile_.tensor.channels));
  }
  __device__ __forceinline__ uint32_t values_in(uint32_t i) const {
    const uint32_t before = kVectorValues * (32 * i + lane_);
    return job_.values > before ? min(kVectorValues, job_.values - before) : 0;
  }

 private:
  // Eight values that can be numbered at run time without leaving registers.
  struct Halves {
    uint64_t low, high;

    __device__ __forceinline__ uint32_t operator[](uint32_t k) const {
      return static_cast<uint32_t>((k < 4 ? low : high) >> (k % 4 * 16)) & 0xffff;
    }
    __device__ __forceinline__ void insert(uint32_t k, uint32_t bits) {  // by exclusive or
      const uint64_t x = uint64_t{bits} << (k % 4 * 16);
      if (k < 4) {
        low ^= x;
      } else {
        high ^= x;
      }
    }
    __device__ __forceinline__ uint4 words() const {
      return make_uint4(static_cast<uint32_t>(low), static_cast<uint32_t>(low >> 32), static_cast<uint32_t>(high),
                        static_cast<uint32_t>(high >> 32));
    }
  };

  static __device__ __forceinline__ uint32_t load_value(uint64_t address) {
    return address % 2 == 0 ? ptx::load_2(address) : ptx::load_1(address) | ptx::load_1(address + 1) << 8;
  }
  __device__ __forceinline__ uint64_t first_value(uint32_t i) const {
    return uint64_t{kVectorValues} * (job_.first + 32 * i + lane_);
  }

  // f(number in the vector, address, channel of the range)
  template <class F>
  __device__ __forceinline__ void for_each_value(uint32_t i, F f) const {
    const uint32_t count = values_in(i), channels = tile_.tensor.channels;
    if (count == 0) return;
    const uint64_t n = first_value(i);
    uint32_t token = static_cast<uint32_t>(n / channels),
             channel = static_cast<uint32_t>(n - uint64_t{token} * channels);
    uint64_t address = row_address(tile_, job_.row + token) + job_.source + 2 * uint64_t{channel};
#pragma unroll 1
    for (uint32_t k = 0;;) {
      f(k, address, channel);
      if (++k == count) return;
      if (++channel == channels) {
        channel = 0, ++token;
        address = row_address(tile_, job_.row + token) + job_.source;
      } else {
        address += 2;
      }
    }
  }

  const TileJob& tile_;
  const ChunkJob& job_;
  uint32_t lane_;
};

// f(rows, full), where the usual chunks have rows of their own: full ones that are linear, or stepped.
template <class Rows, class F>
__device__ __forceinline__ auto with_usual_rows(const Rows& rows, const TileJob& tile, const ChunkJob& job,
                                                const F& f) {
  if constexpr (Rows::kWholeVectors) {
    if (job.linear != 0 && job.vectors == kChunkVectors) return f(rows.linear(), std::true_type());
    if constexpr (requires { rows.stepped(); }) {
      if (job.strided != 0 && tile.tensor.step != 0 && job.vectors == kChunkVectors)
        return f(rows.stepped(), std::true_type());
    }
  }
  return f(rows, std::false_type());
}

// f(rows, mode) with the constants that belong to the tiles of a BF16 kernel.
template <uint32_t kKernel, class F>
__device__ __forceinline__ auto with_bf16_rows(const TileJob& tile, const ChunkJob& job, uint32_t lane, const F& f) {
  using Tiered = std::integral_constant<uint32_t, kTiered>;
  using Fixed4 = std::integral_constant<uint32_t, kFixed4>;
  using Raw = std::integral_constant<uint32_t, kRaw>;
  const ChunkRows<kAligned> vectors(tile, job, lane);
  if constexpr (kKernel == kTieredKernel) return f(vectors, Tiered());
  if constexpr (kKernel == kFixed4Kernel) return f(vectors, Fixed4());
  const ChunkRows<kValues> values(tile, job, lane);
  switch (tile.tensor.mode) {
    case kTiered: return f(values, Tiered());
    case kFixed4: return f(values, Fixed4());
    default: break;
  }
  return tile.tensor.access == kAligned ? f(vectors, Raw()) : f(values, Raw());
}

}  // namespace splitzip::cuda
