// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "error.hpp"
#include "io.hpp"
#include "text.hpp"

namespace splitzip::cli {
namespace {

constexpr std::size_t kFirstGrowth = std::size_t{1} << 20;
constexpr std::size_t kLargestRead = std::size_t{1} << 30;
constexpr int kLookAgainMilliseconds = 50;

}  // namespace

std::span<std::uint8_t> ensure(std::vector<std::uint8_t>& buffer, std::size_t size) {
  if (buffer.size() < size) {
    buffer = {};  // before the new one, not beside it: what was in it is not needed
    buffer.resize(size);
  }
  return std::span(buffer).first(size);
}

Input::Input(const std::string& path) : name_(path == "-" ? "standard input" : printable(path)) {
  if (path == "-") {
    if (::isatty(STDIN_FILENO) == 1) throw UsageError("refusing to read binary data from a terminal");
    fd_ = STDIN_FILENO;
  } else {
    fd_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd_ < 0) throw Error("cannot open " + name_ + ": " + std::strerror(errno));
  }
  if (::fstat(fd_, &status_) != 0) throw Error("cannot read " + name_ + ": " + std::strerror(errno));
  if (S_ISDIR(status_.st_mode)) throw Error(name_ + " is a directory");
  if (S_ISREG(status_.st_mode)) {
    const off_t start = ::lseek(fd_, 0, SEEK_CUR);  // standard input may have been read before
    const off_t left = status_.st_size - std::max<off_t>(start, 0);
    end_ = static_cast<std::uint64_t>(std::max<off_t>(left, 0));
  }
}

Input::~Input() {
  if (fd_ > STDIN_FILENO) ::close(fd_);
}

/// At least one byte; 0 at the end.
std::size_t Input::read_some(std::uint8_t* to, std::size_t size) {
  for (;;) {
    if (is_pipe()) {  // who writes it may take any time
      struct ::pollfd wanted {
        fd_, POLLIN, 0
      };
      while (!interrupted_ && ::poll(&wanted, 1, kLookAgainMilliseconds) == 0) {
      }
    }
    if (interrupted_) throw Error("reading " + name_ + " was interrupted");
    const ssize_t got = ::read(fd_, to, std::min(size, kLargestRead));
    if (got >= 0) return static_cast<std::size_t>(got);
    if (errno != EINTR) throw Error("cannot read " + name_ + ": " + std::strerror(errno));
  }
}

Bytes Input::peek(std::size_t size) {
  while (peeked_size_ < size) {
    const std::size_t got = read_some(peeked_.data() + peeked_size_, size - peeked_size_);
    if (got == 0) break;
    peeked_size_ += got;
  }
  return Bytes(peeked_).first(std::min(size, peeked_size_));
}

bool Input::begins_as(const FileKind& kind) {
  const Bytes start = peek(kind.magic.size());
  return std::string_view(reinterpret_cast<const char*>(start.data()), start.size()) == kind.magic;
}

void Input::refuse_kinds_but(const FileKind& kind) {
  for (const FileKind& other : {kSzkvFile, kCodebookSetFile, kCountsFile}) {
    if (other.magic != kind.magic && begins_as(other))
      throw Error(name_ + " is " + std::string(other.name) + ", not " + std::string(kind.name));
  }
}

std::size_t Input::read(std::span<std::uint8_t> to) {
  std::size_t done = std::min(peeked_size_, to.size());
  std::copy_n(peeked_.begin(), done, to.begin());  // not memcpy: an empty span may have no address
  std::copy(peeked_.begin() + done, peeked_.begin() + peeked_size_, peeked_.begin());
  peeked_size_ -= done;
  while (done < to.size()) {
    const std::size_t got = read_some(to.data() + done, to.size() - done);
    if (got == 0) break;
    done += got;
  }
  position_ += done;
  return done;
}

void Input::read_exact(std::span<std::uint8_t> to, const std::string& what) {
  const std::size_t got = read(to);
  if (got < to.size()) {
    throw Error(name_ + " ends at byte " + std::to_string(position_) + ", " + std::to_string(to.size() - got) +
                " bytes before the end of " + what);
  }
}

std::span<std::uint8_t> Input::read_into(std::vector<std::uint8_t>& buffer, std::uint64_t size,
                                         const std::string& what) {
  if (end_.has_value()) {
    const std::uint64_t left = *end_ - std::min(*end_, position_);
    if (size > left) {
      throw Error(name_ + " ends at byte " + std::to_string(*end_) + ", " + std::to_string(size - left) +
                  " bytes before the end of " + what);
    }
    const auto to = ensure(buffer, static_cast<std::size_t>(size));
    read_exact(to, what);
    return to;
  }
  std::uint64_t done = 0;
  while (done < size) {
    const std::uint64_t room = std::max<std::uint64_t>({buffer.size(), 2 * done, kFirstGrowth});
    const std::uint64_t part_end = std::min(size, room);
    if (buffer.size() < part_end) buffer.resize(static_cast<std::size_t>(part_end));
    const auto to =
        std::span(buffer).subspan(static_cast<std::size_t>(done), static_cast<std::size_t>(part_end - done));
    read_exact(to, what);
    done = part_end;
  }
  return std::span(buffer).first(static_cast<std::size_t>(size));
}

std::vector<std::uint8_t> Input::read_all(std::uint64_t limit, const std::string& what) {
  std::vector<std::uint8_t> bytes;
  std::size_t done = 0;
  for (;;) {
    const std::uint64_t expected = end_.value_or(0) + 1;  // one more, to see the end
    bytes.resize(
        static_cast<std::size_t>(std::max<std::uint64_t>({2 * done, std::min(expected, limit + 1), kFirstGrowth})));
    done += read(std::span(bytes).subspan(done));
    if (done > limit) throw Error(name_ + ": more than " + std::to_string(limit) + " bytes are too many for " + what);
    if (done < bytes.size()) break;
  }
  bytes.resize(done);
  return bytes;
}

void Input::skip(std::uint64_t size, const std::string& what) {
  std::vector<std::uint8_t> buffer(static_cast<std::size_t>(std::min<std::uint64_t>(size, kFirstGrowth)));
  while (size > 0) {
    const std::uint64_t part = std::min<std::uint64_t>(size, buffer.size());
    read_exact(std::span(buffer).first(static_cast<std::size_t>(part)), what);
    size -= part;
  }
}

void Input::expect_end(const std::string& what) {
  std::uint8_t byte = 0;
  if (read({&byte, 1}) != 0) {
    throw Error(name_ + ": bytes after the end of " + what + ", from byte " + std::to_string(position_ - 1) + " on");
  }
}

}  // namespace splitzip::cli
