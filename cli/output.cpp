// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "error.hpp"
#include "io.hpp"
#include "text.hpp"

namespace splitzip::cli {
namespace {

constexpr std::size_t kDiskPart = std::size_t{8} << 20;

// The file that a signal has to remove. Written only by the one Output that is open.
char g_temporary
    [PATH_MAX];  // NOLINT(cppcoreguidelines-avoid-non-const-global-variables): a signal handler sees nothing else

extern "C" void remove_temporary_and_die(int signal) {
  if (g_temporary[0] != '\0') ::unlink(g_temporary);
  ::signal(signal, SIG_DFL);
  ::raise(signal);
}

std::string folder_of(const std::string& path) {
  const auto slash = path.rfind('/');
  return slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
}

/// Rename that fails with EEXIST where `to` exists, as one step if the system can do that.
int rename_to_new(const char* from, const char* to) {
#ifdef RENAME_NOREPLACE
  if (::renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_NOREPLACE) == 0) return 0;
  if (errno != EINVAL && errno != ENOSYS) return -1;
#endif
  if (::access(to, F_OK) == 0) {
    errno = EEXIST;
    return -1;
  }
  return ::rename(from, to);
}

}  // namespace

void install_signal_handlers() {
  ::signal(SIGXFSZ, SIG_IGN);  // writing beyond the limit then fails with a message
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGPIPE}) {
    struct ::sigaction action {};
    struct ::sigaction before {};
    ::sigaction(signal, nullptr, &before);
    if (before.sa_handler == SIG_IGN) continue;  // nohup and the like
    action.sa_handler = remove_temporary_and_die;
    ::sigaction(signal, &action, nullptr);
  }
}

Output::Output(const OutputOptions& options, const Input* source)
    : name_(options.path == "-" ? "standard output" : printable(options.path)),
      target_(options.path),
      overwrite_(options.overwrite) {
  if (options.path == "-") {
    if (::isatty(STDOUT_FILENO) == 1)
      throw UsageError("refusing to write binary data to a terminal; use -o FILE or a pipe");
    fd_ = STDOUT_FILENO;
    return;
  }
  if (char* const resolved = ::realpath(target_.c_str(), nullptr); resolved != nullptr) {
    target_ = resolved;  // a symbolic link stays one
    std::free(resolved);
  }
  struct ::stat status {};
  if (::stat(target_.c_str(), &status) == 0) {
    if (S_ISDIR(status.st_mode)) throw Error(name_ + " is a directory");
    if (source != nullptr && source->status().st_dev == status.st_dev && source->status().st_ino == status.st_ino) {
      throw Error("input and output are the same file: " + name_);
    }
    if (!S_ISREG(status.st_mode)) {
      fd_ = ::open(target_.c_str(), O_WRONLY | O_CLOEXEC);
      if (fd_ < 0) throw Error("cannot open " + name_ + ": " + std::strerror(errno));
      return;
    }
    if (!overwrite_) throw Error(name_ + " already exists; use -f to overwrite it");
  }
  open_temporary(options.permissions);
}

void Output::open_temporary(::mode_t permissions) {
  static unsigned counter = 0;
  for (;;) {
    temporary_ =
        folder_of(target_) + "/.splitzip-" + std::to_string(::getpid()) + "-" + std::to_string(counter++) + ".tmp";
    if (temporary_.size() >= sizeof g_temporary) throw Error("the name of " + name_ + " is too long");
    std::memcpy(g_temporary, temporary_.c_str(), temporary_.size() + 1);
    fd_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, permissions);
    if (fd_ >= 0) return;
    const int error = errno;
    g_temporary[0] = '\0';
    if (error != EEXIST) throw Error("cannot create " + name_ + ": " + std::strerror(error));
  }
}

Output::~Output() {
  if (fd_ > STDERR_FILENO) ::close(fd_);
  if (!temporary_.empty()) {
    ::unlink(temporary_.c_str());
    g_temporary[0] = '\0';
  }
}

void Output::fail_write(int error) const { throw Error("cannot write " + name_ + ": " + std::strerror(error)); }

/// What was written so far; without waiting for it, so that little is left for commit().
void Output::send_to_disk() {
#ifdef SYNC_FILE_RANGE_WRITE
  ::sync_file_range(fd_, static_cast<off_t>(sent_), static_cast<off_t>(waiting_), SYNC_FILE_RANGE_WRITE);
#endif
  sent_ += waiting_;
  waiting_ = 0;
}

void Output::write(Bytes bytes) {
  while (!bytes.empty()) {
    const ssize_t put = ::write(fd_, bytes.data(), std::min(bytes.size(), kDiskPart));
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) fail_write(errno);
    bytes = bytes.subspan(static_cast<std::size_t>(put));
    waiting_ += static_cast<std::uint64_t>(put);
    if (waiting_ >= kDiskPart && !temporary_.empty()) send_to_disk();
  }
}

void Output::commit() {
  if (temporary_.empty()) return;
  if (::fsync(fd_) != 0) fail_write(errno);
  const int closed = ::close(fd_);
  fd_ = -1;
  if (closed != 0) fail_write(errno);
  const int renamed =
      overwrite_ ? ::rename(temporary_.c_str(), target_.c_str()) : rename_to_new(temporary_.c_str(), target_.c_str());
  if (renamed != 0) {
    if (errno == EEXIST) throw Error(name_ + " already exists; use -f to overwrite it");
    throw Error("cannot rename the finished file to " + name_ + ": " + std::strerror(errno));
  }
  g_temporary[0] = '\0';
  temporary_.clear();

  // The new name shall survive a crash too; a folder that cannot be synchronised is no reason to fail.
  const int folder = ::open(folder_of(target_).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder >= 0) {
    ::fsync(folder);
    ::close(folder);
  }
}

void write_file(const OutputOptions& options, Bytes bytes) {
  Output output(options, nullptr);
  output.write(bytes);
  output.commit();
}

}  // namespace splitzip::cli
