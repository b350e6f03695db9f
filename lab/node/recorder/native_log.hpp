// What this process records, and where to.
#pragma once

#include <pthread.h>

#include <atomic>
#include <cstdint>
#include <ctime>
#include <mutex>
#include <string>
#include <string_view>

#include "native_file.hpp"
#include "native_json.hpp"

namespace recorder {

inline int64_t now_ns() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

struct Log {
  std::atomic<bool> on{false};
  // At most so many elements of one side of a call are kept as values; 0: neither values nor summaries.
  std::atomic<int64_t> values{0};
  // Number of the latest call.
  std::atomic<int64_t> calls{0};

  // `limit`: the largest file in bytes.
  void start(int fd, size_t limit) {
    const std::lock_guard<std::mutex> guard(lock_);
    file_.open(fd);
    limit_ = limit;
    on = true;
  }

  // Appends a line. A full disk ends the recording, not the run; so does a file that is large enough.
  void write(std::string_view line) {
    if (!on.load(std::memory_order_relaxed) || line.empty())
      return;
    const std::lock_guard<std::mutex> guard(lock_);
    if (!on.load(std::memory_order_relaxed))
      return;
    if (file_.size() + line.size() + kRoomForCut > limit_) {
      file_.append(cut_line());
      end();
    } else if (!file_.append(line)) {
      end();
    }
  }

  // Whether it was recording until now.
  bool stop() {
    if (!on.load(std::memory_order_relaxed))
      return false;
    const std::lock_guard<std::mutex> guard(lock_);
    const bool was_on = on;
    end();
    return was_on;
  }

 private:
  static constexpr size_t kRoomForCut = 256;

  void end() {
    on = false;
    file_.unmap();
  }

  std::string cut_line() const {
    Json line;
    const std::string why = "the trace is larger than " + std::to_string(limit_ >> 20) + " MiB";
    line.raw("{\"k\":\"cut\",\"t\":").integer(now_ns()).key("why").string(why);
    return line.raw("}\n").text;
  }

  std::mutex lock_; // held for no longer than a line is copied; nothing else is waited for under it
  LineFile file_;
  size_t limit_ = 0;
};

inline Log& log() {
  static Log the_log;
  return the_log;
}

// A fork of the worker is not the worker: it stops recording before its first own instruction. The lock may be held by
// a thread that it does not have, so it is not touched.
inline void stop_in_forks() {
  pthread_atfork(nullptr, nullptr, [] { log().on = false; });
}

} // namespace recorder
