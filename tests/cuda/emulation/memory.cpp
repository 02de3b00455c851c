// SPDX-License-Identifier: Apache-2.0
#include "memory.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <map>
#include <mutex>
#include <string>

#if defined(__SANITIZE_ADDRESS__)
#define SPLITZIP_ADDRESS_SANITIZER
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SPLITZIP_ADDRESS_SANITIZER
#endif
#endif
#ifdef SPLITZIP_ADDRESS_SANITIZER
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(address, size) static_cast<void>(address)
#define ASAN_UNPOISON_MEMORY_REGION(address, size) static_cast<void>(address)
#endif

namespace splitzip::emulation {
namespace {

constexpr std::size_t kPage = 4096, kAlignment = 256;  // as addresses of device memory are aligned

std::size_t round_up(std::size_t n, std::size_t to) { return (n + to - 1) / to * to; }

/// A piece of memory lies at the end of its pages, which have one without access before and behind: what goes beyond the piece, rounded up to the alignment
/// (with AddressSanitizer: at all), ends the program.
struct Place {
  std::size_t pages;  // bytes of the pages
  std::size_t lead;   // before the memory, in the pages
  explicit Place(std::size_t bytes) : pages(round_up(bytes, kPage)), lead(pages - round_up(bytes, kAlignment)) {}
};

struct Piece {
  std::size_t bytes;
  int file;  // -1: another process's
};

std::mutex lock;
std::map<const char*, Piece> pieces;

void* map_file(int file, std::size_t bytes) {
  const Place place(bytes);
  void* const all =
      mmap(nullptr, place.pages + 2 * kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (all == MAP_FAILED) return nullptr;
  char* const pages = static_cast<char*>(all) + kPage;
  if (mmap(pages, place.pages, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0) == MAP_FAILED) {
    munmap(all, place.pages + 2 * kPage);
    return nullptr;
  }
  ASAN_POISON_MEMORY_REGION(pages, place.lead);
  ASAN_POISON_MEMORY_REGION(pages + place.lead + bytes, place.pages - place.lead - bytes);
  return pages + place.lead;
}

void unmap(char* memory, std::size_t bytes) {
  const Place place(bytes);
  char* const pages = memory - place.lead;
  ASAN_UNPOISON_MEMORY_REGION(pages, place.pages);
  munmap(pages - kPage, place.pages + 2 * kPage);
}

void remember(void* memory, const Piece& piece) {
  const std::lock_guard guard(lock);
  pieces[static_cast<char*>(memory)] = piece;
}

}  // namespace

void* allocate(std::size_t bytes) {
  const Piece piece{bytes == 0 ? 1 : bytes, memfd_create("device memory", 0)};
  void* memory = nullptr;
  if (piece.file >= 0 && ftruncate(piece.file, static_cast<off_t>(Place(piece.bytes).pages)) == 0)
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
  unmap(static_cast<char*>(memory), found->second.bytes);
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
