// SPDX-License-Identifier: Apache-2.0
//
// A chunk's pieces of the planes of its entry: docs/format.md, 4.3 and 5.3.
#pragma once

#include "cuda/element.cuh"
#include "cuda/tile.cuh"

namespace splitzip::cuda {

// The places of a lane's vectors in the planes.
template <class E>
class ElementPlanes {
 public:
  __device__ __forceinline__ ElementPlanes(const TileJob& tile, const ChunkJob& job, uint32_t lane)
      : tile_(tile), job_(job), lane_(lane), first_(ptx::keep(job.rests + E::plane_bytes(0) * lane)) {}

  __device__ __forceinline__ void store_rests(uint32_t i, const uint2 (&x)[E::kPlanes]) const {
    store_plane<E::plane_bytes(0)>(address<0>(i), x[0]);
    if constexpr (E::kPlanes > 1) store_plane<E::plane_bytes(1)>(address<1>(i), x[1]);
    if constexpr (E::kPlanes > 2) store_plane<E::plane_bytes(2)>(address<2>(i), x[2]);
  }
  template <uint32_t kPlane>
  __device__ __forceinline__ uint2 load_rest(uint32_t i) const {
    return load_plane<E::plane_bytes(kPlane)>(address<kPlane>(i));
  }

 private:
  template <uint32_t kPlane>
  __device__ __forceinline__ uint64_t address(uint32_t i) const {
    if constexpr (kPlane == 0) return first_ + 32 * E::plane_bytes(0) * i;
    // Anew where it is used, rather than kept in registers.
    return tile_.more_rests[kPlane - 1] + uint64_t{E::plane_bytes(kPlane)} * (job_.vectors_before + 32 * i + lane_);
  }

  const TileJob& tile_;
  const ChunkJob& job_;
  uint32_t lane_;
  uint64_t first_;
};

// Raw and constant chunks: their bytes in order through the planes and the variable part, which lies in shared memory.
template <class E>
class PlainPieces {
 public:
  __device__ __forceinline__ PlainPieces(const TileJob& tile, const ChunkJob& job, uint32_t mode, uint32_t variable) {
    uint32_t at = 0;
#pragma unroll
    for (uint32_t p = 0; p < kPieces; ++p) {
      const bool rest = p < E::kPlanes;
      const uint32_t bytes = rest ? E::plane_bytes(p) : E::code_bytes(mode);
      uint64_t start = rest ? job.rests : job.codes;
      if (rest && p != 0) start = tile.more_rests[p - 1] + uint64_t{bytes} * job.vectors_before;
      bias_[p] = start - at;
      at += bytes * job.vectors;
      ends_[p] = at;
    }
    variable_ = variable - at;
  }

  // Vector number n of the chunk. `with_variable`: else what would be in the variable part is left out.
  __device__ __forceinline__ void store(uint32_t n, uint4 w, bool with_variable) const {
    const uint32_t at = kVectorBytes * n;
    uint64_t address;
    const uint32_t piece = find(at, address);
    if (find_end(at) == piece) {
      if (piece < kPieces && address % 16 == 0) return ptx::store_16(address, w);
      if (piece < kPieces && address % 8 == 0)
        return ptx::store_8(address, w.x, w.y), ptx::store_8(address + 8, w.z, w.w);
      if (piece == kPieces && (variable_ + at) % 16 == 0) {
        if (with_variable) ptx::store_shared_16(variable_ + at, w);
        return;
      }
    }
#pragma unroll 1
    for (uint32_t b = 0; b < kVectorBytes; ++b) {
      if (find(at + b, address) < kPieces) {
        ptx::store_1(address, w.x & 0xff);
      } else if (with_variable) {
        ptx::store_shared_byte(variable_ + at + b, w.x & 0xff);
      }
      w = shift_vector(w, 0, 8);
    }
  }
  // What is not loaded is zero.
  __device__ __forceinline__ uint4 load(uint32_t n, bool with_variable) const {
    const uint32_t at = kVectorBytes * n;
    uint64_t address;
    const uint32_t piece = find(at, address);
    if (find_end(at) == piece) {
      if (piece < kPieces && address % 16 == 0) return ptx::load_16(address);
      if (piece < kPieces && address % 8 == 0) {
        const uint2 low = ptx::load_8(address), high = ptx::load_8(address + 8);
        return make_uint4(low.x, low.y, high.x, high.y);
      }
      if (piece == kPieces && !with_variable) return make_uint4(0, 0, 0, 0);
      if (piece == kPieces && (variable_ + at) % 16 == 0) return ptx::load_shared_16(variable_ + at);
    }
    uint4 w = make_uint4(0, 0, 0, 0);
#pragma unroll 1
    for (uint32_t b = 0; b < kVectorBytes; ++b) {
      uint32_t x = 0;
      if (find(at + b, address) < kPieces) {
        x = ptx::load_1(address);
      } else if (with_variable) {
        x = ptx::load_shared_byte(variable_ + at + b);
      }
      w = shift_vector(w, x, 8);
    }
    return w;
  }

 private:
  static constexpr uint32_t kPieces = E::kPlanes + 1;

  // The piece that has byte n of the chunk, and its address; kPieces: the variable part.
  __device__ __forceinline__ uint32_t find(uint32_t n, uint64_t& address) const {
    uint32_t piece = kPieces;
    address = 0;
#pragma unroll
    for (int p = static_cast<int>(kPieces) - 1; p >= 0; --p) {
      if (n < ends_[p]) piece = p, address = bias_[p] + n;
    }
    return piece;
  }
  __device__ __forceinline__ uint32_t find_end(uint32_t at) const {
    uint64_t address;
    return find(at + kVectorBytes - 1, address);
  }

  uint64_t bias_[kPieces];  // of addresses, against numbers of bytes
  uint32_t ends_[kPieces];
  uint32_t variable_;
};

}  // namespace splitzip::cuda
