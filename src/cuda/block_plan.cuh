// SPDX-License-Identifier: Apache-2.0
//
// Short calls have no kernel that plans: every block finds out for itself where its tiles belong. So the kernels that code tiles need not wait for another
// one, and what is found of a tile has a place of its own, which nobody has to have cleared.
#pragma once

#include "cuda/entry_plan.cuh"
#include "cuda/tile.cuh"

namespace splitzip::cuda {

constexpr uint32_t kShortEntries = kBlockThreads;  // of all requests of a short call
constexpr uint32_t kShortFrames = 32;

// In shared memory, for as long as its entries are planned.
struct BlockPlan {
  Totals before[kShortEntries + 1];  // each entry; after the last one: all
  Totals warps[kShortEntries / 32];
  uint32_t errors[kShortFrames];  // as in Findings

  __device__ FrameSums frame_sums(const Batch& batch, uint32_t f) const {
    return {before[f * batch.tensor_count], before[(f + 1) * batch.tensor_count], errors[f], 0};
  }
  // Of all requests.
  __device__ uint32_t count_tiles(const Batch& batch) const {
    return min(before[batch.frame_count * batch.tensor_count].tiles, batch.tile_capacity);
  }
};

// All tensors of a short call are alike in this: what is known need not be computed.
__device__ __forceinline__ void assume_short(TensorRecord& tensor) {
  tensor.access = kAligned, tensor.vector_values = kVectorValues;
  tensor.planes.rests[0] = rest_bytes(kTiered), tensor.planes.rests[1] = tensor.planes.rests[2] = 0;
}

// Plans the call, by all threads of a block, kBlockThreads at least. await() is called between what belongs to the table and what may be written until the
// kernel is allowed to look; summed() once the sums over entries are known. use(e, input, plan_to) has entry e, by a thread each: plan_to(entry) plans it.
// Then all threads may look at the plan.
template <class Await, class Summed, class Use>
__device__ __forceinline__ void plan_block(const Batch& batch, BlockPlan& plan, const Await& await,
                                           const Summed& summed, const Use& use) {
  const uint32_t e = threadIdx.x, entries = batch.frame_count * batch.tensor_count;
  EntryInput input;
  if (e < entries) {
    load_tensor(batch, e, input);
    assume_short(input.record);
    expect_request(batch, input.frame, input.tensor);
  }
  await();
  Totals mine{};
  if (e < batch.frame_count) plan.errors[e] = 0;
  if (e < entries) {
    load_rows(batch, input);
    mine = {input.shape.chunk_count, input.shape.tile_count, input.shape.section_bytes()};
  }
  Totals all;
  const Totals before = scan_block(mine, (entries + 31) / 32, plan.warps, all) - mine;
  if (e < entries) plan.before[e] = before;
  if (e == 0) plan.before[entries] = all;
  if (e < entries && input.status != SPLITZIP_OK) atomicMax(&plan.errors[input.frame], kErrorKey - input.status);
  __syncthreads();
  summed();
  if (e < entries) {
    const auto plan_to = [&](EntryPlan& entry) {
      plan_entry(batch, input, before, plan.frame_sums(batch, input.frame), entry);
    };
    use(e, input, plan_to);
  }
  __syncthreads();
}

// Decoding: what the directory says of a tile comes to the second cache, while the tile is prepared.
__device__ __forceinline__ void expect_directory(const EntryPlan& entry, uint32_t batch_tile) {
  const uint32_t tile = batch_tile - entry.batch_tile;
  ptx::prefetch(entry.records + uint64_t{2} * kTileChunks * tile);
  ptx::prefetch(entry.checksums + uint64_t{4} * kTileChunks * tile);
  ptx::prefetch(entry.tile_records + uint64_t{4} * tile);
}

// The plan in a kernel that codes tiles.
template <uint32_t kStages>
struct TilesPlan {
  BlockPlan block;
  uint32_t entries[kStages];  // of the block's first tiles; or kNoEntry

  // Leaves in each job the plan of the tile's entry.
  template <class Await>
  __device__ __forceinline__ void make(const Batch& batch, TileJob (&jobs)[kStages], const Await& await) {
    if (threadIdx.x < kStages) entries[threadIdx.x] = kNoEntry;
    plan_block(
        batch, block, await, [] {},
        [&](uint32_t e, const EntryInput&, const auto& plan_to) {
          const uint32_t first = block.before[e].tiles, end = min(block.before[e + 1].tiles, batch.tile_capacity);
#pragma unroll 1
          for (uint32_t stage = 0; stage < kStages; ++stage) {
            const uint32_t tile = stage * gridDim.x + blockIdx.x;
            if (tile < first || tile >= end) continue;
            plan_to(jobs[stage].entry);
            entries[stage] = e;
            if (batch.decoding != 0 && jobs[stage].entry.live != 0) expect_directory(jobs[stage].entry, tile);
          }
        });
  }
};

// Of a tile of BF16, by a warp: its pieces of the planes, and its slot, come to the second cache while the directory is on its way.
__device__ __forceinline__ void expect_tile(const TileJob& job, uint32_t lane) {
  const ChunkJob &first = job.chunks[0], &last = job.chunks[job.chunk_count - 1];
  const auto expect = [&](uint64_t from, uint64_t end) {
    for (uint64_t at = from + 128 * lane; at < end; at += 4096) ptx::prefetch(at);
  };
  expect(first.rests, last.rests + rest_bytes(job.tensor.mode) * last.vectors);
  expect(first.codes, last.codes + code_bytes(job.tensor.mode) * last.vectors);
  expect(job.slot, job.slot + 4 * job.slot_words);
}

// Begins a kernel that codes tiles, by all threads of a block. In a short call it returns a plan, in memory that nobody needs before the first tiles are prepared.
template <bool kShort, uint32_t kStages, class Memory>
__device__ __forceinline__ auto start_tiles(const Batch& batch, TileJob (&jobs)[kStages], Memory& memory) {
  using Plan = std::conditional_t<kShort, const TilesPlan<kStages>*, const NoPlan*>;
  const auto await = [] {
    ptx::wait_for_previous_grid();
    ptx::allow_next_grid();
  };
  if constexpr (!kShort) {
    await();
    return Plan{nullptr};
  } else {
    static_assert(sizeof(TilesPlan<kStages>) <= sizeof(Memory) && alignof(TilesPlan<kStages>) <= 8);
    auto& plan = *reinterpret_cast<TilesPlan<kStages>*>(&memory);
    plan.make(batch, jobs, await);
    if (blockIdx.x == 0) {  // for the last kernel
      if (threadIdx.x == 0) batch.state->finished_blocks = 0;
      if (threadIdx.x < batch.frame_count) batch.frames[threadIdx.x].found = Findings{};
    }
    return Plan{&plan};
  }
}

}  // namespace splitzip::cuda
