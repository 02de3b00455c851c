// SPDX-License-Identifier: Apache-2.0
//
// Device memory as memory files, so that other processes can map it, as they can map a device's.
#pragma once

#include <cstddef>

namespace splitzip::emulation {

/// What another process needs to find an allocation of this one.
struct SharedMemory {
  int process, file;
  std::size_t bytes;
};

/// Nothing where there is not so much memory.
void* allocate(std::size_t bytes);
/// False where no allocation or mapping begins there.
bool release(void* memory);
/// Whether it lies in an allocation or a mapping.
bool is_device_memory(const void* memory);
/// False where no allocation begins there.
bool share(const void* memory, SharedMemory* shared);
/// Nothing where that process is gone, or is this one.
void* map(const SharedMemory& shared);

}  // namespace splitzip::emulation
