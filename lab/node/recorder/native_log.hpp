// What this process records, and where to.
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

// The beginning of a line of this kind, which happens now.
inline Json line_of(std::string_view kind) {
  Json line;
  line.raw("{").key("k").string(kind).key("t").number(std::chrono::steady_clock::now().time_since_epoch().count());
  return line;
}

struct Log {
  std::atomic<bool> on{false};
  // At most so many elements of one side of a call are kept as values; 0: neither values nor summaries.
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

  // Appends a whole line. A full disk ends the recording, not the run; so does a file that is large enough.
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

  // Whether it was recording until now.
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
