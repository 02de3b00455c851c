// SPDX-License-Identifier: Apache-2.0
#include "memory.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <map>
#include <mutex>
#include <string>

namespace splitzip::emulation {
namespace {

struct Piece {
  std::size_t bytes;
  int file;  // -1: another process's
};

std::mutex lock;
std::map<const char*, Piece> pieces;

void* map_file(int file, std::size_t bytes) {
  void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  return memory == MAP_FAILED ? nullptr : memory;
}

void remember(void* memory, const Piece& piece) {
  const std::lock_guard guard(lock);
  pieces[static_cast<char*>(memory)] = piece;
}

}  // namespace

void* allocate(std::size_t bytes) {
  const Piece piece{bytes == 0 ? 1 : bytes, memfd_create("device memory", 0)};
  void* memory = nullptr;
  if (piece.file >= 0 && ftruncate(piece.file, static_cast<off_t>(piece.bytes)) == 0)
    memory = map_file(piece.file, piece.bytes);
  if (memory != nullptr) {
    remember(memory, piece);
  } else if (piece.file >= 0) {
    close(piece.file);
  }
  return memory;
}

bool release(void* memory) {
  const std::lock_guard guard(lock);
  const auto found = pieces.find(static_cast<char*>(memory));
  if (found == pieces.end()) return false;
  munmap(memory, found->second.bytes);
  if (found->second.file >= 0) close(found->second.file);
  pieces.erase(found);
  return true;
}

bool is_device_memory(const void* memory) {
  const std::lock_guard guard(lock);
  const auto* const address = static_cast<const char*>(memory);
  auto next = pieces.upper_bound(address);
  return next != pieces.begin() && address < (--next)->first + next->second.bytes;
}

bool share(const void* memory, SharedMemory* shared) {
  const std::lock_guard guard(lock);
  const auto found = pieces.find(static_cast<const char*>(memory));
  if (found == pieces.end() || found->second.file < 0) return false;
  *shared = {getpid(), found->second.file, found->second.bytes};
  return true;
}

void* map(const SharedMemory& shared) {
  if (shared.process == getpid()) return nullptr;
  const std::string path = "/proc/" + std::to_string(shared.process) + "/fd/" + std::to_string(shared.file);
  const int file = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (file < 0) return nullptr;
  void* const memory = map_file(file, shared.bytes);
  close(file);
  if (memory != nullptr) remember(memory, {shared.bytes, -1});
  return memory;
}

}  // namespace splitzip::emulation
