// SPDX-License-Identifier: Apache-2.0
//
// Files and pipes: input read once from front to end, output that appears whole or not at all.
#pragma once

#include <sys/stat.h>
#include <sys/types.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace splitzip::cli {

using Bytes = std::span<const std::uint8_t>;

/// Room for `size` bytes. It never shrinks: a buffer that is used again and again is cleared only once.
std::span<std::uint8_t> ensure(std::vector<std::uint8_t>& buffer, std::size_t size);

/// A kind of files: how messages name it, and the first bytes of ours.
struct FileKind {
  std::string_view name, magic;
};
inline constexpr FileKind kSafetensorsFile{"a safetensors file", ""}, kSzkvFile{"a *.szkv file", "SZKV"},
    kCodebookSetFile{"a codebook set", "SZCB"}, kCountsFile{"a file of counts", "SZCN"};

class Input {
 public:
  /// `path` "-" is standard input.
  explicit Input(const std::string& path);
  ~Input();
  Input(const Input&) = delete;
  Input& operator=(const Input&) = delete;

  /// For messages.
  const std::string& name() const { return name_; }
  bool is_pipe() const { return !end_.has_value(); }
  const struct ::stat& status() const { return status_; }
  /// Bytes read so far.
  std::uint64_t position() const { return position_; }
  /// Bytes from the first to the last one; unknown for a pipe.
  std::optional<std::uint64_t> size() const { return end_; }

  /// The first bytes, at most 16 and fewer only at the end of the input, without taking them. Only before the first read.
  Bytes peek(std::size_t size);
  /// True if the input begins as a file of this kind, one of ours, does. Only before the first read.
  bool begins_as(const FileKind& kind);
  /// An error if it begins as a file of ours of another kind, which was mistaken for this one. Only before the first read.
  void refuse_kinds_but(const FileKind& kind);
  /// At most to.size() bytes; fewer only at the end.
  std::size_t read(std::span<std::uint8_t> to);
  /// All of `to`, or an error that says that `what` is cut off.
  void read_exact(std::span<std::uint8_t> to, const std::string& what);
  /// `size` bytes, at the front of `buffer`. The size is not trusted: it is compared with the length of the file, and the
  /// buffer for a pipe grows with what arrives.
  std::span<std::uint8_t> read_into(std::vector<std::uint8_t>& buffer, std::uint64_t size, const std::string& what);
  /// Everything that is left, at most `limit` bytes.
  std::vector<std::uint8_t> read_all(std::uint64_t limit, const std::string& what);
  /// Leave `size` bytes out.
  void skip(std::uint64_t size, const std::string& what);
  /// An error unless everything was read.
  void expect_end(const std::string& what);
  /// From any thread: a read that waits for a pipe, and all that come, fail.
  void interrupt() { interrupted_ = true; }

 private:
  std::size_t read_some(std::uint8_t* to, std::size_t size);

  int fd_ = -1;
  std::string name_;
  struct ::stat status_ {};
  std::optional<std::uint64_t> end_;
  std::uint64_t position_ = 0;
  std::array<std::uint8_t, 16> peeked_{};
  std::size_t peeked_size_ = 0;
  std::atomic<bool> interrupted_ = false;
};

struct OutputOptions {
  std::string path;  // "-" is standard output
  bool overwrite = false;
  ::mode_t permissions = 0666;  // before the umask
};

/// A file is written under a temporary name in its folder and gets its own name in commit(); without commit nothing stays.
/// Standard output and what is no regular file (a device, a pipe) is written directly.
class Output {
 public:
  /// `source`, if there is one, must not be the same file.
  Output(const OutputOptions& options, const Input* source);
  ~Output();
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;

  const std::string& name() const { return name_; }
  void write(Bytes bytes);
  void commit();

 private:
  void open_temporary(::mode_t permissions);
  void send_to_disk();
  [[noreturn]] void fail_write(int error) const;

  int fd_ = -1;
  std::string name_;
  std::string target_;
  std::string temporary_;  // empty: written directly
  bool overwrite_ = false;
  std::uint64_t sent_ = 0;     // bytes on their way to the disk
  std::uint64_t waiting_ = 0;  // bytes written after them
};

/// All of a file at once.
void write_file(const OutputOptions& options, Bytes bytes);

/// A run that is interrupted removes its temporary file first.
void install_signal_handlers();

}  // namespace splitzip::cli
