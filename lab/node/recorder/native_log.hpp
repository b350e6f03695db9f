// The recording of this process: whether it is on, its limits, and its file.
#pragma once

#include <pthread.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>

#include "native_file.hpp"
#include "native_json.hpp"

namespace recorder {

// The beginning of a line of this kind, with the current time.
inline Json line_of(std::string_view kind) {
  Json line;
  line.raw("{").key("k").string(kind).key("t").number(std::chrono::steady_clock::now().time_since_epoch().count());
  return line;
}

struct Log {
  std::atomic<bool> on{false};
  // Limit of recorded elements for each side of a call; 0: neither values nor summaries.
  std::atomic<int64_t> values{0};
  // Number of the latest call.
  std::atomic<int64_t> calls{0};

  // `limit`: the largest file in bytes.
  void start(int fd, int64_t most_values, size_t limit) {
    const std::lock_guard<std::mutex> guard(lock_);
    file_.open(fd);
    limit_ = limit;
    values = most_values;
    calls = 0;
    on = true;
  }

  void write(Json&& line) {
    write(line.raw("}\n").text);
  }

  // Appends a whole line. A full disk, or a file at its limit, ends the recording, but not the run.
  void write(std::string_view line) {
    if (!on.load(std::memory_order_relaxed))
      return;
    const std::lock_guard<std::mutex> guard(lock_);
    if (!on.load(std::memory_order_relaxed))
      return;
    if (file_.size() + line.size() + kRoomForCut > limit_) {
      const std::string why = "the trace is larger than " + std::to_string(limit_ >> 20) + " MiB";
      file_.append(line_of("cut").key("why").string(why).raw("}\n").text);
      end();
    } else if (!file_.append(line)) {
      end();
    }
  }

  // Returns whether it recorded until now.
  bool stop() {
    if (!on)
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

  std::mutex lock_; // held only while a line is copied, never during another wait
  LineFile file_;
  size_t limit_ = 0;
};

inline Log& log() {
  static Log the_log;
  return the_log;
}

// A fork of the worker stops recording before its first own instruction. It does not touch the lock: a thread that the
// fork does not have may hold it.
inline void stop_in_forks() {
  pthread_atfork(nullptr, nullptr, [] { log().on = false; });
}

} // namespace recorder
