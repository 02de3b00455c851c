// SPDX-License-Identifier: Apache-2.0
//
// From a chunk of an entry to its unit.
#pragma once

#include "cuda/device_types.cuh"
#include "cuda/hash.cuh"

namespace splitzip::cuda {

struct ChunkPlace {
  uint32_t block;  // in the entry
  uint32_t range;
  uint32_t chunk;           // in the unit
  uint32_t vectors;         // of the chunk
  uint32_t values;          // without padding values
  uint32_t vectors_before;  // of the entry
};

__device__ __forceinline__ ChunkPlace locate(const EntryPlan& entry, const TensorRecord& tensor, uint32_t chunk,
                                             uint32_t vector_values = kVectorValues) {
  ChunkPlace place;
  uint32_t unit_vectors, padding;
  if (chunk < entry.full_chunks) {
    const uint32_t unit = tensor.by_unit_chunks.divide(chunk);
    place.chunk = chunk - unit * tensor.by_unit_chunks.value;
    place.block = tensor.by_ranges.divide(unit);
    place.range = unit - place.block * tensor.ranges;
    unit_vectors = tensor.unit_vectors, padding = tensor.unit_padding;
    place.vectors_before = unit * unit_vectors;
  } else {
    const uint32_t n = chunk - entry.full_chunks;
    place.block = entry.full_blocks;
    place.range = n / entry.last_chunks;
    place.chunk = n - place.range * entry.last_chunks;
    unit_vectors = entry.last_vectors, padding = entry.last_padding;
    place.vectors_before = entry.full_vectors + place.range * unit_vectors;
  }
  const uint32_t first = place.chunk * kChunkVectors;
  place.vectors_before += first;
  place.vectors = min(kChunkVectors, unit_vectors - first);
  place.values = place.vectors * vector_values - (first + place.vectors == unit_vectors ? padding : 0);
  return place;
}

// The checksum of the chunk is finalize(seed + sum of its folded lanes).
__device__ __forceinline__ uint32_t content_seed(const EntryPlan& entry, const TensorRecord& tensor,
                                                 const ChunkPlace& place) {
  const uint32_t channel = tensor.first_channel + place.range * tensor.channels;
  const uint64_t block = entry.first_block + place.block;
  return tensor.seed + static_cast<uint32_t>(block) * 0x27D4EB2Fu + static_cast<uint32_t>(block >> 32) * 0x165667B1u +
         channel * 0x9E3779B1u + place.chunk * 0x85EBCA77u + place.values * 0xC2B2AE3Du;
}

}  // namespace splitzip::cuda
