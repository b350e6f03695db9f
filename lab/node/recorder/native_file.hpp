// The file of the trace. Lines are copied into mapped pages of the file, which the kernel keeps even if this process is
// killed. If the file cannot be mapped, or another process could truncate it, each line is one write().
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <string_view>
#include <utility>

#ifndef F_GET_SEALS
#define F_GET_SEALS 1034
#define F_SEAL_SHRINK 2
#endif
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

namespace recorder {

// Not thread-safe.
class LineFile {
 public:
  // `fd` is open for reading and appending; no other code appends while a part of the file is mapped.
  void open(int fd) {
    leave_window();
    fd_ = fd;
    // An access to a page behind the end of a truncated file would kill this process.
    const int seals = fcntl(fd, F_GET_SEALS);
    mappable_ = seals != -1 && (seals & F_SEAL_SHRINK) != 0;
    const off_t size = lseek(fd, 0, SEEK_END);
    used_ = end_ = size < 0 ? 0 : static_cast<size_t>(size);
  }

  size_t size() const {
    return used_;
  }

  // Appends a whole line, its newline last: a reader who sees the newline sees the line. False if the disk is full.
  bool append(std::string_view line) {
    if (line.size() > end_ - used_ && !(mappable_ && make_room(line.size())))
      return write(line);
    char* const to = window_ + (used_ - begin_);
    const size_t last = line.size() - 1;
    std::memcpy(to, line.data(), last);
    std::atomic_ref<char>(to[last]).store(line[last], std::memory_order_release);
    used_ += line.size();
    return true;
  }

  // Truncates the file to its lines; from now on each line is one write().
  void unmap() {
    mappable_ = false;
    leave_window();
    if (end_ > used_) { // the file is longer than its lines
      allocate(FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, used_, end_ - used_);
      fcntl(fd_, F_SETFL, fcntl(fd_, F_GETFL) & ~O_APPEND);
      lseek(fd_, static_cast<off_t>(used_), SEEK_SET);
    }
    end_ = used_;
  }

 private:
  static constexpr size_t kChunk = 256 * 1024;

  // Maps the next part of the file. Allocates its disk space first: a full disk is then an error here, and not a signal
  // while a line is copied.
  bool make_room(size_t bytes) {
    leave_window();
    const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    begin_ = used_ / page * page;
    length_ = (used_ - begin_ + bytes + kChunk - 1) / kChunk * kChunk;
    end_ = begin_ + length_;
    if (allocate(0, begin_, length_) && map())
      return true;
    unmap();
    return false;
  }

  bool allocate(int mode, size_t begin, size_t bytes) const {
    int failed;
    do
      failed = fallocate(fd_, mode, static_cast<off_t>(begin), static_cast<off_t>(bytes));
    while (failed && errno == EINTR);
    return !failed;
  }

  bool map() {
    void* const at =
        mmap(nullptr, length_, PROT_READ | PROT_WRITE, MAP_SHARED, fd_, static_cast<off_t>(begin_));
    if (at == MAP_FAILED)
      return false;
    window_ = static_cast<char*>(at);
    return madvise(at, length_, MADV_POPULATE_WRITE) == 0 || errno == EINVAL; // not supported by Linux before 5.14
  }

  void leave_window() {
    if (window_ != nullptr)
      munmap(window_, length_);
    window_ = nullptr;
  }

  bool write(std::string_view line) {
    const size_t before = used_;
    while (!line.empty()) {
      const ssize_t written = ::write(fd_, line.data(), line.size());
      if (written < 0 && errno != EINTR) {
        end_ = std::exchange(used_, before); // removes the incomplete line
        unmap();
        return false;
      }
      if (written > 0) {
        line.remove_prefix(static_cast<size_t>(written));
        used_ += static_cast<size_t>(written);
      }
    }
    end_ = used_;
    return true;
  }

  int fd_ = -1;
  bool mappable_ = false;
  size_t used_ = 0; // bytes of the lines in the file
  size_t end_ = 0; // offset of the end of the mapped part; `used_` if nothing is mapped
  char* window_ = nullptr; // address of the mapped part
  size_t begin_ = 0; // offset of the beginning of the mapped part
  size_t length_ = 0;
};

} // namespace recorder
