// Where lines go: one write() each, to a descriptor that the agent opened for appending.
#pragma once

#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <ctime>
#include <string_view>

namespace recorder {

struct Log {
  std::atomic<bool> on{false};
  std::atomic<int> fd{-1};
  // At most so many elements of one side of a call are kept as values; 0: neither values nor summaries.
  std::atomic<int64_t> values{0};
  // Number of the latest call.
  std::atomic<int64_t> calls{0};

  void write(std::string_view line) {
    while (on.load(std::memory_order_relaxed) && !line.empty()) {
      const ssize_t written = ::write(fd.load(std::memory_order_relaxed), line.data(), line.size());
      if (written >= 0)
        line.remove_prefix(static_cast<size_t>(written));
      else if (errno != EINTR)
        on = false; // a full disk or a closed descriptor: the run goes on without a record
    }
  }
};

inline Log& log() {
  static Log the_log;
  return the_log;
}

// A fork of the worker is not the worker: it stops recording before its first own instruction.
inline void stop_in_forks() {
  pthread_atfork(nullptr, nullptr, [] { log().on = false; });
}

inline int64_t now_ns() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

} // namespace recorder
