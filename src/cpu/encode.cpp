// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <optional>
#include <utility>

#include "cpu/backend.hpp"
#include "cpu/codec.hpp"
#include "cpu/gather.hpp"
#include "cpu/prefetch.hpp"
#include "cpu/tile_groups.hpp"

namespace splitzip {

splitzip_status make_entry(const splitzip_tensor& tensor, std::uint32_t index, FrameEntry& entry,
                           splitzip_error* error) {
  const Place where{.tensor = index};
  if (tensor.struct_size != sizeof tensor) {
    return fail(error, SPLITZIP_ERROR_INVALID_ARGUMENT, "struct_size of the tensor is not that of this version", where);
  }
  if (element_format(static_cast<std::uint32_t>(tensor.type)).bytes == 0) {
    return fail(error, SPLITZIP_ERROR_UNSUPPORTED_TYPE, "unknown element type", where);
  }
  if (!is_mode(static_cast<std::uint32_t>(tensor.mode)))
    return fail(error, SPLITZIP_ERROR_UNSUPPORTED_MODE, "unknown mode", where);
  const bool coded = tensor.mode != SPLITZIP_MODE_RAW;
  if (coded && tensor.codebook == nullptr) {
    return fail(error, SPLITZIP_ERROR_CODEBOOK_REQUIRED, "this mode needs a codebook", where);
  }
  if (coded && tensor.codebook->type != tensor.type) {
    return fail(error, SPLITZIP_ERROR_CODEBOOK_MISMATCH, "codebook is for another element type", where);
  }
  if (coded && !tensor.codebook->covers(tensor.first_channel + std::uint64_t{tensor.ranges} * tensor.channels)) {
    return fail(error, SPLITZIP_ERROR_CODEBOOK_MISMATCH, "tensor reaches beyond the channels of the codebook", where);
  }
  const bool default_slot = tensor.slot_words == SPLITZIP_SLOT_DEFAULT;
  if (!default_slot && (tensor.slot_words > kMaxSlotWords || (!coded && tensor.slot_words != 0))) {
    return fail(error, SPLITZIP_ERROR_INVALID_TENSOR, "slot_words is above 1536, or not 0 in mode raw", where);
  }
  entry = {coded ? tensor.codebook->hash : 0,
           tensor.tensor_key,
           tensor.first_block,
           tensor.tokens,
           tensor.tokens_per_unit,
           tensor.channels,
           tensor.first_channel,
           tensor.ranges,
           static_cast<std::uint16_t>(default_slot ? 0 : tensor.slot_words),
           static_cast<std::uint8_t>(tensor.type),
           static_cast<std::uint8_t>(tensor.mode)};
  if (default_slot && coded) {
    const std::uint32_t slot = tensor.codebook->slot_words(entry.mode);
    entry.slot_words = static_cast<std::uint16_t>(default_slot_words(entry.shape(), slot));
  }
  return SPLITZIP_OK;
}

namespace {

/// Check all tensors and count them.
splitzip_status count_tensors(Tensors tensors, GeometryWalk& walk, splitzip_error* error) {
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    FrameEntry entry;
    const auto index = static_cast<std::uint32_t>(i);
    if (const auto status = make_entry(tensors[i], index, entry, error); status != SPLITZIP_OK) return status;
    const char* message = "";
    if (const auto status = walk.count(entry.shape(), &message); status != SPLITZIP_OK) {
      return fail(error, status, message, {.tensor = i});
    }
  }
  return SPLITZIP_OK;
}

/// The entry of a tensor that make_entry accepted before.
FrameEntry entry_of(const splitzip_tensor& tensor) {
  FrameEntry entry;
  make_entry(tensor, 0, entry, nullptr);
  return entry;
}

/// The frame that is being written, by any number of threads: each takes group after group of tiles. Every byte is written, so what was in
/// the memory before does not matter.
class FrameEncoder final : public SharedWork {
 public:
  FrameEncoder(Tensors tensors, Layouts sources, const splitzip_encode_options& options, const FrameGeometry& geometry,
               const GeometryWalk& counted, std::span<std::uint8_t> dst)
      : tensors_(tensors),
        sources_(sources),
        options_(options),
        geometry_(geometry),
        counted_(counted),
        dst_(dst),
        directory_checksum_(hash_u64(HashDomain::kNonce, options.nonce)) {
    // There are not more groups than tiles, and one is looked for after the last; clearing it all would be felt in small frames.
    std::fill_n(announced_.begin(), std::min<std::size_t>(announced_.size(), std::size_t{geometry.tiles} + 1), nullptr);
  }

  void work() noexcept override;

  /// After the work. False if the spill had no room; *entry is then where.
  bool spill_fits(std::size_t* entry) const {
    *entry = full_at_;
    return !full_.load(std::memory_order_relaxed);
  }
  /// After the work: what it left out.
  void finish();
  std::uint64_t bytes() const { return geometry_.spill_offset + 4 * spill_words_; }

 private:
  struct OpenEntry;
  struct Group;
  class Pending;

  std::uint8_t* at(std::uint64_t offset) const { return dst_.data() + offset; }
  void clear_padding(std::uint64_t end) const { std::memset(at(end), 0, align_up(end, kSectionAlignment) - end); }
  void clear_entry_padding(const OpenEntry& open) const;
  void clear_directory_padding() const;
  std::uint32_t encode_tile(OpenEntry& open, std::uint32_t index, std::uint32_t tile, Pending& pending) const;
  void announce(Group& group);
  std::uint32_t place(Pending& pending, bool all);
  std::uint32_t place_group(const Group& group, const std::uint8_t* remainders);

  const Backend& backend_ = active_backend();
  const Tensors tensors_;
  const Layouts sources_;
  const splitzip_encode_options& options_;
  const FrameGeometry& geometry_;
  const GeometryWalk& counted_;
  const std::span<std::uint8_t> dst_;
  const bool prefetches_ = geometry_.raw_bytes >= kPrefetchBytes;

  // Apart from what all threads only read.
  alignas(64) std::atomic<std::uint32_t> next_group_{0};
  std::atomic<std::uint32_t> directory_checksum_;
  // The spill is in tile order: where a group's part begins is known when all groups before it are encoded. All of them below turn_ are. Who
  // announces the one that was missing passes the turn on through all that were announced meanwhile, whoever encoded them.
  std::mutex mutex_;
  std::condition_variable passed_on_;
  std::atomic<std::uint32_t> turn_{0};
  std::array<Group*, 1024> announced_;  // that have not had their turn, by their number
  std::uint64_t spill_words_ = 0;
  std::size_t full_at_ = 0;
  std::atomic<bool> full_{false};
};

/// Tiles that are encoded, and what they leave for the spill.
struct FrameEncoder::Group {
  std::uint32_t number;
  std::uint32_t entry;
  std::uint32_t first_tile;  // of the frame
  std::uint32_t first_byte;  // of the remainders of the thread's groups
  std::uint32_t tiles;
  std::array<std::uint32_t, kGroupTiles> words;  // of each tile's remainder
  std::uint64_t first_word;                      // of the spill, once the group has had its turn
  bool fits;

  std::uint32_t total_words() const {
    std::uint32_t total = 0;
    for (std::uint32_t i = 0; i < tiles; ++i) total += words[i];
    return total;
  }
};

/// An entry as one thread sees it.
struct FrameEncoder::OpenEntry {
  FrameEntry fields;
  EntryGeometry geometry;
  ChunkCoder coder;
  std::uint32_t tensor_seed;

  OpenEntry(const FrameEntry& entry, GeometryWalk& walk, const splitzip_codebook* codebook)
      : fields(entry),
        geometry(walk.place(entry.shape())),
        coder(geometry, codebook),
        tensor_seed(hash_u64(HashDomain::kTensorKey, entry.tensor_key)) {}
};

/// The groups that a thread has encoded, in order, until they are placed: a thread that is interrupted in the middle of a group shall not
/// hold up the others.
class FrameEncoder::Pending {
 public:
  bool empty() const { return count_ == 0; }
  /// Whether the next group finds room, whatever its tiles leave.
  bool has_room() const { return first_ + count_ < groups_.size() && used_ <= kGroupBytes; }
  const Group& front() const { return groups_[first_]; }
  Group& back() { return groups_[first_ + count_ - 1]; }
  const std::uint8_t* remainders() const { return remainders_.data(); }

  void add_group(std::uint32_t number, std::uint32_t entry, std::uint32_t first_tile) {
    if (count_ == 0) first_ = used_ = 0;
    groups_[first_ + count_++] = {number, entry, first_tile, used_, 0, {}, 0, false};
  }
  void add_tile(const std::uint8_t* remainder, std::uint32_t words) {
    back().words[back().tiles++] = words;
    std::memcpy(remainders_.data() + used_, remainder, 4 * std::size_t{words});
    used_ += 4 * words;
  }
  void remove_front() { ++first_, --count_; }

  std::array<std::uint8_t, 4 * kMaxSlotWords + kVariableSlack> tile;  // room to put its variable parts together

 private:
  static constexpr std::uint32_t kGroupBytes = 4 * kMaxSlotWords * kGroupTiles;

  std::array<Group, 128> groups_;
  std::array<std::uint8_t, 2 * std::size_t{kGroupBytes}> remainders_;
  std::uint32_t first_ = 0, count_ = 0, used_ = 0;
};

void FrameEncoder::work() noexcept {
  GeometryWalk geometry_walk = counted_;
  GroupWalk groups;
  GroupTaker taker(next_group_, geometry_.tiles);
  std::optional<OpenEntry> open;
  Pending pending;
  std::uint32_t checksum = 0;
  const auto open_entry = [&](std::uint32_t index) {
    open.emplace(entry_of(tensors_[index]), geometry_walk, tensors_[index].codebook);
    return open->geometry.tiles;
  };
  // What is taken is encoded in any case: others may wait for it.
  while (taker.has_more() || !full_.load(std::memory_order_relaxed)) {
    const std::uint32_t group = taker.take();
    const std::uint32_t index = groups.find(group, geometry_.entries, open_entry);
    if (index == GroupWalk::kNoEntry) break;
    const TileRange tiles = groups.tiles(group);
    pending.add_group(group, index, open->geometry.first_tile + tiles.begin);
    if (tiles.begin == 0) clear_entry_padding(*open);
    for (std::uint32_t tile = tiles.begin; tile < tiles.end; ++tile)
      checksum += encode_tile(*open, index, tile, pending);
    announce(pending.back());
    checksum += place(pending, !pending.has_room());
  }
  checksum += place(pending, true);
  directory_checksum_.fetch_add(checksum, std::memory_order_relaxed);
}

void FrameEncoder::clear_entry_padding(const OpenEntry& open) const {
  const EntryGeometry& entry = open.geometry;
  for (std::uint32_t p = 0; p < entry.planes.count; ++p) {
    clear_padding(entry.plane_offset[p] + entry.vectors * entry.planes.vector_bytes[p]);
  }
  clear_padding(entry.slots_offset + 4 * entry.slot_words_total());
}

/// Everything of a tile but its spill, which is appended to `pending`, and its record. Returns what the chunks add to the directory checksum.
std::uint32_t FrameEncoder::encode_tile(OpenEntry& open, std::uint32_t index, std::uint32_t tile,
                                        Pending& pending) const {
  const EntryGeometry& entry = open.geometry;
  std::uint32_t checksum = 0;
  std::uint32_t words = 0;
  const std::uint32_t first = tile * kTileChunks;
  for (std::uint32_t chunk = first; chunk < first + entry.tile_chunks(tile); ++chunk) {
    const ChunkPlace place = entry.place(chunk);
    const std::uint32_t channel = entry.shape.first_channel + place.range * entry.shape.channels;
    alignas(64) std::array<std::uint8_t, kChunkBytes> buffer;
    const std::uint8_t* content = gather(
        sources_[index],
        {place.first_token, place.range, entry.shape.channels, entry.format.bytes, place.first_value, place.count},
        buffer.data());
    if (prefetches_ && content != buffer.data()) prefetch_next(content, std::size_t{place.vectors} * kVectorBytes);

    ChunkBytes<std::uint8_t> to;
    for (std::uint32_t p = 0; p < entry.planes.count; ++p) {
      to.planes[p] = at(entry.plane_offset[p] + place.first_vector * entry.planes.vector_bytes[p]);
      if (prefetches_) prefetch_next<true>(to.planes[p], std::size_t{place.vectors} * entry.planes.vector_bytes[p]);
    }
    to.variable = pending.tile.data() + 4 * std::size_t{words};
    const ChunkRecord record =
        backend_.encode(open.coder, {place.count, place.vectors, channel, place.first_value}, content, to);
    words += record.words;

    const std::uint64_t number = std::uint64_t{entry.first_chunk} + chunk;
    store(at(geometry_.records_offset + 2 * number), record.bits());
    std::uint32_t content_hash = 0;
    if (geometry_.checksums_offset != 0) {
      content_hash = content_checksum(
          backend_.sum(content, place.vectors),
          {open.tensor_seed, open.fields.first_block + place.block, channel, place.chunk, place.count});
      store(at(geometry_.checksums_offset + 4 * number), content_hash);
    }
    checksum += chunk_record_hash(static_cast<std::uint32_t>(number), record.bits(), content_hash);
  }

  const std::uint32_t slot_words = entry.tile_slot_words(tile);
  const std::uint32_t head = std::min(words, slot_words);
  std::uint8_t* const slot = at(entry.slots_offset + 4 * std::uint64_t{tile} * entry.shape.slot_words);
  std::memcpy(slot, pending.tile.data(), 4 * std::size_t{head});
  std::memset(slot + 4 * std::size_t{head}, 0, 4 * std::size_t{slot_words - head});
  pending.add_tile(pending.tile.data() + 4 * std::size_t{head}, words - head);
  return checksum;
}

/// Say that `group` is encoded; it stays where it is until it has had its turn.
void FrameEncoder::announce(Group& group) {
  std::unique_lock lock(mutex_);
  // Never for the group that has its turn.
  passed_on_.wait(lock, [&] { return group.number - turn_.load(std::memory_order_relaxed) < announced_.size(); });
  announced_[group.number % announced_.size()] = &group;

  std::uint32_t turn = turn_.load(std::memory_order_relaxed);
  if (group.number != turn) return;
  for (Group* next; (next = std::exchange(announced_[turn % announced_.size()], nullptr)) != nullptr; ++turn) {
    const std::uint32_t words = next->total_words();
    next->first_word = spill_words_;
    next->fits = !full_.load(std::memory_order_relaxed) && (dst_.size() - bytes()) / 4 >= words;
    if (next->fits) {
      spill_words_ += words;
    } else if (!full_.exchange(true, std::memory_order_relaxed)) {
      full_at_ = next->entry;
    }
  }
  turn_.store(turn, std::memory_order_release);
  lock.unlock();
  passed_on_.notify_all();
}

/// Place the pending groups that have had their turn; or all, and wait for their turns. Returns what that adds to the directory checksum.
std::uint32_t FrameEncoder::place(Pending& pending, bool all) {
  std::uint32_t checksum = 0;
  for (; !pending.empty(); pending.remove_front()) {
    const Group& group = pending.front();
    if (turn_.load(std::memory_order_acquire) <= group.number) {
      if (!all) return checksum;
      std::unique_lock lock(mutex_);
      passed_on_.wait(lock, [&] { return turn_.load(std::memory_order_relaxed) > group.number; });
    }
    if (group.fits) checksum += place_group(group, pending.remainders() + group.first_byte);
  }
  return checksum;
}

/// A group's part of the spill and its tile records. Returns what they add to the directory checksum.
std::uint32_t FrameEncoder::place_group(const Group& group, const std::uint8_t* remainders) {
  std::memcpy(dst_.data() + geometry_.spill_offset + 4 * group.first_word, remainders,
              4 * std::size_t{group.total_words()});
  std::uint32_t checksum = 0;
  auto record = static_cast<std::uint32_t>(group.first_word);
  for (std::uint32_t i = 0; i < group.tiles; ++i) {
    const std::uint32_t number = group.first_tile + i;
    store(at(geometry_.tile_records_offset + 4 * std::uint64_t{number}), record);
    checksum += tile_record_hash(number, record);
    record += group.words[i];
  }
  return checksum;
}

void FrameEncoder::clear_directory_padding() const {
  if (geometry_.entries == 0) return;
  clear_padding(geometry_.entries_end());
  clear_padding(geometry_.records_offset + 2 * std::uint64_t{geometry_.chunks});
  if (geometry_.checksums_offset != 0) clear_padding(geometry_.checksums_offset + 4 * std::uint64_t{geometry_.chunks});
  clear_padding(geometry_.tile_records_offset + 4 * std::uint64_t{geometry_.tiles});
}

void FrameEncoder::finish() {
  clear_directory_padding();
  for (std::size_t i = 0; i < tensors_.size(); ++i) store(at(kHeaderBytes + i * kEntryBytes), entry_of(tensors_[i]));

  // Header last: it covers the rest.
  FrameHeader header;
  header.flags = geometry_.checksums_offset != 0 ? kFlagChecksums : 0;
  header.nonce = options_.nonce;
  header.entry_count = geometry_.entries;
  header.chunk_count = geometry_.chunks;
  header.tile_count = geometry_.tiles;
  header.spill_words = static_cast<std::uint32_t>(spill_words_);
  header.frame_bytes = bytes();
  header.directory_checksum = directory_checksum_.load(std::memory_order_relaxed);
  store(dst_.data(), header);
  header.header_checksum = header_checksum(dst_.data(), geometry_.entries);
  store(dst_.data(), header);
}

/// Of a budget all bytes travel: none may be what was in the memory before.
void clear_after(std::span<std::uint8_t> dst, std::size_t used) {
  std::memset(dst.data() + used, 0, dst.size() - used);
}

}  // namespace

splitzip_status frame_geometry(Tensors tensors, bool checksums, FrameGeometry& geometry, splitzip_error* error) {
  GeometryWalk walk;
  if (const auto status = count_tensors(tensors, walk, error); status != SPLITZIP_OK) return status;
  walk.finish_counting(checksums);
  for (const splitzip_tensor& tensor : tensors) walk.place(entry_of(tensor).shape());
  geometry = walk.frame();
  return SPLITZIP_OK;
}

splitzip_status encode_frame(Tensors tensors, Layouts sources, const splitzip_encode_options& options, Workers* workers,
                             std::span<std::uint8_t> dst, std::size_t& size, splitzip_error* error) {
  GeometryWalk counted;
  if (const auto status = count_tensors(tensors, counted, error); status != SPLITZIP_OK) return status;
  counted.finish_counting(options.checksums != 0);
  GeometryWalk walk = counted;
  for (const splitzip_tensor& tensor : tensors) walk.place(entry_of(tensor).shape());
  const FrameGeometry& geometry = walk.frame();
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (const char* fault = find_layout_fault(sources[i], tensors[i].tokens); fault != nullptr) {
      return fail(error, SPLITZIP_ERROR_INVALID_LAYOUT, fault, {.tensor = i});
    }
  }
  const bool marks = options.budget != 0 && dst.size() >= kHeaderBytes;
  const auto refuse = [&](const char* message, Place where) {
    if (!marks) return fail(error, SPLITZIP_ERROR_OUTPUT_TOO_SMALL, message, where);
    store(dst.data(), over_budget_mark(options.nonce));
    size = kHeaderBytes;
    clear_after(dst, size);
    return fail(error, SPLITZIP_ERROR_OVER_BUDGET, message, where);
  };
  if (dst.size() < geometry.spill_offset) return refuse("output is smaller than the known part of the frame", {});

  FrameEncoder encoder(tensors, sources, options, geometry, counted, dst);
  run_shared(encoder, workers, geometry.tiles);
  std::size_t full_at = 0;
  if (!encoder.spill_fits(&full_at)) return refuse("output has no room for the spill", {.tensor = full_at});
  encoder.finish();
  size = encoder.bytes();
  if (marks) clear_after(dst, size);
  return SPLITZIP_OK;
}

}  // namespace splitzip
