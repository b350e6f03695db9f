// The file that lines are appended to. They are copied into pages of the file itself, which the kernel keeps whatever
// becomes of this process; where the file cannot be mapped, each line is one write().
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <string_view>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

namespace recorder {

// Not for several threads at once.
class LineFile {
 public:
  // `fd` is open for reading and appending; nobody else appends while lines are mapped.
  void open(int fd) {
    leave_window();
    fd_ = fd;
    struct stat facts;
    mappable_ = fstat(fd, &facts) == 0 && S_ISREG(facts.st_mode);
    used_ = end_ = allocated_ = mappable_ ? static_cast<size_t>(facts.st_size) : 0;
  }

  size_t size() const {
    return used_;
  }

  // Appends a whole line, its newline last, so that a reader who sees that sees all of it. False if the disk is full.
  bool append(std::string_view line) {
    if (window_ != nullptr && !reaches(allocated_))
      unmap(); // somebody cut it: to touch the pages that are gone would be the end of this process
    if (line.size() > end_ - used_ && !(mappable_ && make_room(line.size())))
      return write(line);
    char* const to = window_ + (used_ - begin_);
    const size_t last = line.size() - 1;
    std::memcpy(to, line.data(), last);
    std::atomic_ref<char>(to[last]).store(line[last], std::memory_order_release);
    used_ += line.size();
    return true;
  }

  // Gives back the room that was not used; what is appended from now on is written.
  void unmap() {
    mappable_ = false;
    leave_window();
    end_ = used_;
    if (allocated_ > used_ && ftruncate(fd_, static_cast<off_t>(used_)) == 0)
      allocated_ = used_;
  }

 private:
  static constexpr size_t kChunk = 256 * 1024;

  // Maps the next part of the file. The room is reserved on the disk first: a full one is an error here, and never a
  // signal when a line is copied.
  bool make_room(size_t bytes) {
    leave_window();
    const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    begin_ = used_ / page * page;
    length_ = (used_ - begin_ + bytes + kChunk - 1) / kChunk * kChunk;
    allocated_ = begin_ + length_;
    if (!allocate() || !map()) {
      unmap();
      return false;
    }
    end_ = allocated_;
    return true;
  }

  bool reaches(size_t end) const {
    struct stat facts;
    return fstat(fd_, &facts) == 0 && static_cast<size_t>(facts.st_size) >= end;
  }

  bool allocate() const {
    int failed;
    do
      failed = fallocate(fd_, 0, static_cast<off_t>(begin_), static_cast<off_t>(length_));
    while (failed && errno == EINTR);
    return !failed;
  }

  bool map() {
    void* const at =
        mmap(nullptr, length_, PROT_READ | PROT_WRITE, MAP_SHARED, fd_, static_cast<off_t>(begin_));
    if (at == MAP_FAILED)
      return false;
    window_ = static_cast<char*>(at);
    return madvise(at, length_, MADV_POPULATE_WRITE) == 0 || errno == EINVAL; // Linux before 5.14 does not know it
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
        allocated_ = used_;
        used_ = before; // half a line is none
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
  size_t used_ = 0; // bytes of the file that are lines
  size_t allocated_ = 0; // bytes that the file was extended to
  size_t end_ = 0; // the mapped part of the file ends here; `used_` where none is mapped
  char* window_ = nullptr; // the mapped part of the file,
  size_t begin_ = 0; // which begins at this byte of it
  size_t length_ = 0;
};

} // namespace recorder
