// SPDX-License-Identifier: Apache-2.0
//
// Where the values of a chunk are, for values of any type at any address: gather for encoding, scatter for decoding.
//
// Lane l of a warp owns the vectors 32 i + l, i = 0..3, of its chunk.
#pragma once

#include "cuda/rows.cuh"

namespace splitzip::cuda {

// So many bytes, 1, 2 or 4, at any address.
__device__ __forceinline__ uint32_t load_bytes(uint64_t address, uint32_t bytes) {
  if (bytes == 4 && address % 4 == 0) return ptx::load_4(address);
  if (bytes == 2 && address % 2 == 0) return ptx::load_2(address);
  uint32_t x = 0;
#pragma unroll 1
  for (uint32_t b = 0; b < bytes; ++b) x |= ptx::load_1(address + b) << (8 * b);
  return x;
}
__device__ __forceinline__ void store_bytes(uint64_t address, uint32_t x, uint32_t bytes) {
  if (bytes == 4 && address % 4 == 0) return ptx::store_4(address, x);
  if (bytes == 2 && address % 2 == 0) return ptx::store_2(address, x);
#pragma unroll 1
  for (uint32_t b = 0; b < bytes; ++b, x >>= 8) ptx::store_1(address + b, x & 0xff);
}

// Shifts `bits` (8, 16 or 32) out of a vector at its low end, those of x in at its high end.
__device__ __forceinline__ uint4 shift_vector(uint4 w, uint32_t x, uint32_t bits) {
  return make_uint4(ptx::shift_right_clamped(w.x, w.y, bits), ptx::shift_right_clamped(w.y, w.z, bits),
                    ptx::shift_right_clamped(w.z, w.w, bits), ptx::shift_right_clamped(w.w, x, bits));
}
// The first n bytes of a vector.
__device__ __forceinline__ uint4 keep_bytes(uint4 w, uint32_t n) {
  const auto keep = [n](uint32_t x, uint32_t first) {
    const uint32_t bits = 8 * (max(n, first) - first);
    return x & ~ptx::shift_left_clamped(0, 0xffffffffu, bits);
  };
  return make_uint4(keep(w.x, 0), keep(w.y, 4), keep(w.z, 8), keep(w.w, 12));
}
__device__ __forceinline__ bool is_zero(uint4 w) { return (w.x | w.y | w.z | w.w) == 0; }
__device__ __forceinline__ uint4 exclusive_or(uint4 a, uint4 b) {
  return make_uint4(a.x ^ b.x, a.y ^ b.y, a.z ^ b.z, a.w ^ b.w);
}

// The bases of a vector.
template <uint32_t kBytes>
__device__ __forceinline__ uint4 load_bases(uint64_t address) {
  if constexpr (kBytes == 16) return ptx::load_16(address);
  const uint2 x = ptx::load_8(address);
  return make_uint4(x.x, x.y, 0, 0);
}

// How many of its four vectors a lane has: all, as many as each other lane, or what there is.
enum class Lanes { kFull, kEven, kAny };

template <Lanes kLanes>
class LaneVectors {
 public:
  __device__ __forceinline__ LaneVectors(const ChunkJob& job, uint32_t lane) : vectors_(job.vectors), lane_(lane) {}
  // Whether any lane has vector i: if not, the warp passes over it.
  __device__ __forceinline__ bool any(uint32_t i) const {
    return kLanes == Lanes::kFull || i == 0 || 32 * i < vectors_;
  }
  __device__ __forceinline__ bool own(uint32_t i) const {
    return kLanes == Lanes::kAny ? 32 * i + lane_ < vectors_ : any(i);
  }

 private:
  uint32_t vectors_, lane_;
};

// What the lanes of a linear chunk have as a rule, for which there is code of its own. In 8 bits the last chunk of a unit is often a half one.
template <class E>
inline constexpr Lanes kUsualLanes = E::kBytes == 1 ? Lanes::kEven : Lanes::kFull;

// A chunk that lies in one piece, its vectors and those of its bases aligned.
template <class E>
class LinearElements {
 public:
  static constexpr bool kWholeVectors = true;

  __device__ __forceinline__ LinearElements(const ChunkJob& job, uint32_t lane)
      : source_(ptx::keep(job.source + kVectorBytes * lane)), bases_(ptx::keep(job.bases + kBaseVectorBytes * lane)) {}
  __device__ __forceinline__ uint4 load(uint32_t i) const { return ptx::load_16(source_ + 512 * i); }
  __device__ __forceinline__ void store(uint32_t i, uint4 w) const { ptx::store_16(source_ + 512 * i, w); }
  __device__ __forceinline__ uint4 bases(uint32_t i) const {
    return load_bases<kBaseVectorBytes>(bases_ + 32 * kBaseVectorBytes * i);
  }
  __device__ __forceinline__ uint32_t value(uint32_t i, uint32_t k) const {
    return load_bytes(source_ + 512 * i + E::kBytes * k, E::kBytes);
  }
  __device__ __forceinline__ uint32_t base(uint32_t i, uint32_t k) const {
    return load_bytes(bases_ + 32 * kBaseVectorBytes * i + E::kBaseBytes * k, E::kBaseBytes);
  }
  __device__ __forceinline__ uint32_t values_in(uint32_t) const { return E::kValues; }

 private:
  static constexpr uint32_t kBaseVectorBytes = E::kBaseBytes * E::kValues;

  uint64_t source_, bases_;
};

// With kAligned: every vector lies in one row.
template <class E>
class AlignedElements {
 public:
  static constexpr bool kWholeVectors = true;

  __device__ __forceinline__ AlignedElements(const TileJob& tile, const ChunkJob& job, uint32_t lane)
      : rows_(tile, job, lane), bases_(job.bases + kBaseVectorBytes * lane), job_(job), lane_(lane) {}
  // The same values, if the chunk is linear.
  __device__ __forceinline__ LinearElements<E> linear() const { return LinearElements<E>(job_, lane_); }
  __device__ __forceinline__ uint4 load(uint32_t i) const { return rows_.load(i); }
  __device__ __forceinline__ void store(uint32_t i, uint4 w) const { rows_.store(i, w); }
  __device__ __forceinline__ uint4 bases(uint32_t i) const {
    return load_bases<kBaseVectorBytes>(bases_ + 32 * kBaseVectorBytes * i);
  }
  __device__ __forceinline__ uint32_t value(uint32_t i, uint32_t k) const {
    return load_bytes(rows_.address(i) + E::kBytes * k, E::kBytes);
  }
  __device__ __forceinline__ uint32_t base(uint32_t i, uint32_t k) const {
    return load_bytes(bases_ + 32 * kBaseVectorBytes * i + E::kBaseBytes * k, E::kBaseBytes);
  }
  __device__ __forceinline__ uint32_t values_in(uint32_t) const { return E::kValues; }

 private:
  static constexpr uint32_t kBaseVectorBytes = E::kBaseBytes * E::kValues;

  ChunkRows<kAligned> rows_;
  uint64_t bases_;
  const ChunkJob& job_;
  uint32_t lane_;
};

// A chunk's rows, for code that is for such lanes.
template <Lanes kLanes, class Rows>
__device__ __forceinline__ decltype(auto) rows_for(const Rows& rows) {
  if constexpr (kLanes == Lanes::kAny) {
    return (rows);
  } else {
    return rows.linear();
  }
}

// Any chunk, value by value where nothing better is possible.
class ElementRows {
 public:
  static constexpr bool kWholeVectors = false;

  __device__ __forceinline__ ElementRows(const TileJob& tile, const ChunkJob& job, uint32_t lane)
      : tile_(tile), job_(job), lane_(lane) {}

  // Padding values are zero.
  __device__ __forceinline__ uint4 load(uint32_t i) const {
    if (job_.linear != 0) return ptx::load_16(linear_address(i));
    uint4 w = make_uint4(0, 0, 0, 0);
    const uint32_t piece = tile_.tensor.piece_bytes;
    const Spot spot = find(i, 0);
    if (is_whole(i, spot)) return ptx::load_16(spot.address);
    for_each_piece(i, spot, [&](uint64_t address, bool present) {
      w = shift_vector(w, present ? load_bytes(address, piece) : 0, 8 * piece);
    });
    return w;
  }
  __device__ __forceinline__ void store(uint32_t i, uint4 w) const {
    if (job_.linear != 0) return ptx::store_16(linear_address(i), w);
    const uint32_t piece = tile_.tensor.piece_bytes;
    const Spot spot = find(i, 0);
    if (is_whole(i, spot)) return ptx::store_16(spot.address, w);
    for_each_piece(i, spot, [&](uint64_t address, bool present) {
      if (present) store_bytes(address, w.x, piece);
      w = shift_vector(w, 0, 8 * piece);
    });
  }
  // What is no value has the base of padding values.
  __device__ __forceinline__ uint4 bases(uint32_t i) const {
    const uint32_t entry = tile_.tensor.base_bytes, bytes = entry * tile_.tensor.vector_values;
    const uint32_t padding = tile_.padding_bases;
    const uint64_t address = job_.linear != 0 ? job_.bases + uint64_t{bytes} * (32 * i + lane_)
                                              : job_.bases + uint64_t{entry} * find(i, 0).column;
    // Any alignment: the table goes on for a word beyond what is asked for.
    const uint64_t first = address & ~uint64_t{3};
    const uint32_t bits = 8 * static_cast<uint32_t>(address % 4);
    uint32_t x[5];
#pragma unroll
    for (uint32_t j = 0; j < 5; ++j) x[j] = 4 * j < bytes + 4 ? ptx::load_4(first + 4 * j) : 0;
    const uint4 w = make_uint4(ptx::shift_right(x[0], x[1], bits), ptx::shift_right(x[1], x[2], bits),
                               ptx::shift_right(x[2], x[3], bits), ptx::shift_right(x[3], x[4], bits));
    const uint4 all = make_uint4(padding, padding, padding, padding);
    return exclusive_or(keep_bytes(exclusive_or(w, all), entry * values_in(i)), all);
  }
  __device__ __forceinline__ uint32_t value(uint32_t i, uint32_t k) const {
    const uint32_t bytes = tile_.tensor.value_bytes;
    return load_bytes(job_.linear != 0 ? linear_address(i) + bytes * k : find(i, k).address, bytes);
  }
  __device__ __forceinline__ uint32_t base(uint32_t i, uint32_t k) const {
    const uint32_t entry = tile_.tensor.base_bytes;
    const uint64_t n = job_.linear != 0 ? tile_.tensor.vector_values * (32 * i + lane_) + k : find(i, k).column;
    return load_bytes(job_.bases + entry * n, entry);
  }
  __device__ __forceinline__ uint32_t values_in(uint32_t i) const {
    const uint32_t count = tile_.tensor.vector_values, before = count * (32 * i + lane_);
    return job_.values > before ? min(count, job_.values - before) : 0;
  }

 private:
  struct Spot {
    uint64_t address;
    uint32_t token, column;  // column: values from the start of the range
  };

  __device__ __forceinline__ uint64_t linear_address(uint32_t i) const {
    return job_.source + kVectorBytes * (32 * i + lane_);
  }
  __device__ __forceinline__ uint64_t address_of(uint32_t token) const {
    return row_address(tile_, job_.row + token) + job_.source;
  }
  __device__ __forceinline__ Spot find(uint32_t i, uint32_t k) const {
    Spot spot;
    find_value(tile_.tensor, uint64_t{tile_.tensor.vector_values} * (job_.first + 32 * i + lane_) + k, spot.token,
               spot.column);
    spot.address = address_of(spot.token) + uint64_t{spot.column} * tile_.tensor.value_bytes;
    return spot;
  }
  // Whether the vector is one aligned piece of memory.
  __device__ __forceinline__ bool is_whole(uint32_t i, const Spot& spot) const {
    const uint32_t count = tile_.tensor.vector_values;
    return spot.address % kVectorBytes == 0 && tile_.tensor.channels - spot.column >= count && values_in(i) == count;
  }
  // f(address, present) for all pieces of a vector; a piece never lies in two rows.
  template <class F>
  __device__ __forceinline__ void for_each_piece(uint32_t i, Spot spot, F f) const {
    const uint32_t piece = tile_.tensor.piece_bytes, value = tile_.tensor.value_bytes;
    const uint32_t end = values_in(i) * value;
    uint64_t column = uint64_t{spot.column} * value;
    const uint64_t row_bytes = uint64_t{tile_.tensor.channels} * value;
#pragma unroll 1
    for (uint32_t at = 0; at < kVectorBytes; at += piece) {
      f(spot.address, at < end);
      column += piece, spot.address += piece;
      if (column == row_bytes && at + piece < end) column = 0, spot.address = address_of(++spot.token);
    }
  }

  const TileJob& tile_;
  const ChunkJob& job_;
  uint32_t lane_;
};

}  // namespace splitzip::cuda
