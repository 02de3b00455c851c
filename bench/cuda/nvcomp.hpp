// SPDX-License-Identifier: Apache-2.0
//
// nvCOMP 6, found at run time: its batched C interface, as far as it is used here.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace splitzip::bench::nvcomp {

/// All option structs of that interface take 64 bytes and are passed by value; in nearly all fields zero means "as usual". So
/// one struct serves for all.
struct alignas(8) Options {
  std::uint32_t words[16] = {};
};

using Status = int;  // 0: success

/// The functions of one codec; arrays of pointers and sizes lie on the device.
struct Functions {
  Status (*compress_temp_size)(std::size_t chunks, std::size_t max_chunk, Options, std::size_t* bytes,
                               std::size_t total, cudaStream_t);
  Status (*max_output_chunk_size)(std::size_t max_chunk, Options, std::size_t* bytes);
  Status (*compress)(const void* const* in, const std::size_t* in_bytes, std::size_t max_chunk, std::size_t chunks,
                     void* temp, std::size_t temp_bytes, void* const* out, std::size_t* out_bytes, Options,
                     Status* statuses, cudaStream_t);
  Status (*decompress_temp_size)(std::size_t chunks, std::size_t max_chunk, Options, std::size_t* bytes,
                                 std::size_t total, cudaStream_t);
  Status (*decompress)(const void* const* in, const std::size_t* in_bytes, const std::size_t* out_capacity,
                       std::size_t* out_bytes, std::size_t chunks, void* temp, std::size_t temp_bytes, void* const* out,
                       Options, Status* statuses, cudaStream_t);
};

class Library {
 public:
  /// `path` is a file, or empty: wherever the loader finds it. Throws Failure.
  explicit Library(const std::string& path);

  std::string version() const;
  /// Of "ANS", "Bitcomp", "Cascaded", "LZ4", "Zstd". Throws Failure.
  Functions functions(const std::string& codec) const;
  /// Throws Failure with the library's text for it.
  void check(Status status, const char* what) const;

 private:
  void* find(const std::string& name) const;

  void* handle_ = nullptr;
};

struct Variant {
  std::string name;
  std::string codec;
  std::size_t chunk;
  Options compress;
  Options decompress;
  bool main = false;  // also measured in a quick run
};

/// For 16-bit values.
std::vector<Variant> variants();
/// ANS in the mode that is meant for values of so many bytes.
std::vector<Variant> variants_for(std::size_t value_bytes);

}  // namespace splitzip::bench::nvcomp
