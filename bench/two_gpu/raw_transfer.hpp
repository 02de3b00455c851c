// SPDX-License-Identifier: Apache-2.0
//
// What the codec is compared with: the same bytes as they are.
#pragma once

#include <memory>
#include <vector>

#include "pool.hpp"

namespace splitzip::bench {

/// One copy of so many bytes from pool to pool by the copy engine, over NVLink where the devices have it. The bytes lie in one
/// piece on both sides, so that no engine can move raw pages faster.
class RawPeerCopy {
 public:
  RawPeerCopy(const Pool& from, Pool& to);
  void run(std::uint64_t bytes);

 private:
  const Pool& from_;
  Pool& to_;
  std::unique_ptr<Stream> stream_;
};

/// Every page to its place on the other side, by a kernel that writes to the peer's memory.
class RawPages {
 public:
  RawPages(const Pool& from, Pool& to);
  void run(std::uint32_t page_count);

 private:
  const Pool& from_;
  Pool& to_;
  std::unique_ptr<Stream> stream_;
};

/// Bytes that lie in one piece, in slices over a ring of pinned host buffers: device to host and host to device overlap.
class RawStaged {
 public:
  RawStaged(const Pool& from, Pool& to, std::uint64_t slice_bytes, std::uint32_t slots);
  void run(std::uint64_t bytes);

 private:
  const Pool& from_;
  Pool& to_;
  std::uint64_t slice_bytes_;
  Pinned<std::uint8_t> ring_;
  std::vector<Event> down_, up_;  // of each slot
  std::unique_ptr<Stream> down_stream_, up_stream_;
};

/// Events that only order work: they keep no time.
std::vector<Event> make_events(int device, std::size_t count);
/// A stream of that device.
std::unique_ptr<Stream> make_stream(int device);

}  // namespace splitzip::bench
