// SPDX-License-Identifier: Apache-2.0
//
// Any bytes as a *.szkv file, from a file and from a pipe: refused with a message, or decoded to as many bytes as its index says.
#include "file_blocks.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <optional>
#include <string>

#include "cli/codebooks.hpp"
#include "cli/container.hpp"
#include "cli/error.hpp"

namespace splitzip::fuzz {
namespace {

/// What became of a file: the message, or all of the original.
struct Outcome {
  bool refused = false;
  Bytes original;
  bool operator==(const Outcome&) const = default;
};

Outcome read_file(const std::string& path, std::size_t size) {
  Outcome outcome;
  try {
    cli::Input input(path);
    cli::ContainerReader reader(input);
    cli::Decoder decoder;
    if (!reader.codebook_set().empty()) decoder.codebooks.add(cli::parse_codebook_set(reader.codebook_set(), "set"));
    std::vector<std::uint8_t> buffer, values;
    while (const auto frame = reader.next(buffer)) {
      require(frame->original_offset == outcome.original.size());
      const cli::Bytes piece = decoder.decode(*frame, "file", values);
      require(piece.size() == frame->original_bytes);
      append(outcome.original, piece);
    }
    require(reader.original_bytes() == outcome.original.size());
    require(reader.file_bytes() == size);
    require(outcome.original.size() <= 2 * size);
  } catch (const cli::Error& error) {
    require(error.what()[0] != '\0');
    outcome = {true, {}};
  }
  return outcome;
}

void write_all(int fd, const std::uint8_t* data, std::size_t size) {
  for (std::size_t done = 0; done < size;) {
    const ssize_t written = ::write(fd, data + done, size - done);
    require(written > 0);
    done += static_cast<std::size_t>(written);
  }
}

Outcome from_file(const std::uint8_t* data, std::size_t size) {
  static const int fd = ::memfd_create("fuzz", 0);
  require(fd >= 0 && ::ftruncate(fd, 0) == 0 && ::lseek(fd, 0, SEEK_SET) == 0);
  write_all(fd, data, size);
  return read_file("/proc/self/fd/" + std::to_string(fd), size);
}

constexpr std::size_t kPipeBytes = 65536;

Outcome from_pipe(const std::uint8_t* data, std::size_t size) {
  int ends[2];
  require(::pipe(ends) == 0);
  write_all(ends[1], data, size);
  ::close(ends[1]);
  Outcome outcome = read_file("/proc/self/fd/" + std::to_string(ends[0]), size);
  ::close(ends[0]);
  return outcome;
}

}  // namespace
}  // namespace splitzip::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace splitzip::fuzz;
  const Outcome outcome = from_file(data, size);
  if (size <= kPipeBytes) require(from_pipe(data, size) == outcome);
  return 0;
}

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size, std::size_t max_size,
                                               unsigned seed) {
  using namespace splitzip::fuzz;
  splitzip::test::Random random(seed);
  const Bytes bytes(data, data + size);
  if (random.chance(4) || max_size < 128) return LLVMFuzzerMutate(data, size, max_size);
  File file = take_apart(bytes);
  const auto blocks = static_cast<std::uint32_t>(file.blocks.size());
  const std::uint32_t action = random.below(8);
  if (action == 0 || blocks == 0) {
    file.kind = static_cast<std::uint8_t>(random.below(3));
  } else if (action == 1) {
    file.blocks.push_back(file.blocks[random.below(blocks)]);
  } else if (action == 2) {
    std::swap(file.blocks[random.below(blocks)], file.blocks[random.below(blocks)]);
  } else if (action == 3) {
    file.blocks.erase(file.blocks.begin() + random.below(blocks));
  } else if (action == 4) {
    file.blocks[random.below(blocks)].order ^= 1;
  } else {
    Block& block = file.blocks[random.below(blocks)];
    if (block.type == static_cast<std::uint8_t>(splitzip::BlockType::kFrame)) {
      mutate_frame(block.content, 4096, random);
      if (!random.chance(8)) repair_frame(block.content, 4096);
    } else {
      mutate_bytes(block.content, 4096);
    }
  }
  Bytes changed = put_together(file);
  if (random.chance(8)) mutate_bytes(changed, max_size);
  if (changed.size() > max_size) return LLVMFuzzerMutate(data, size, max_size);
  std::copy(changed.begin(), changed.end(), data);
  return changed.size();
}
