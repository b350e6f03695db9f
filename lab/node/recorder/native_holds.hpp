// Calls that triggers watch: counts them by operation. Python holds the calls that a trigger names, see holds.py.
#pragma once

#include <ATen/ATen.h>
#include <torch/csrc/utils/pybind.h>
#include <torch/csrc/utils/pythoncapi_compat.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "native_values.hpp"

namespace recorder {

class Holds {
 public:
  // By operation: the number of the call, and whether to hold it after its end instead of before its beginning.
  using Points = std::map<std::string, std::vector<std::pair<int64_t, bool>>>;

  // The only check of a call if no trigger watches any.
  std::atomic<bool> armed{false};

  // `reach(op, nth, edge, tensors=)` returns when the call may continue, or raises. Needs the interpreter's lock.
  void arm(pybind11::function reach, Points points) {
    reach_ = std::move(reach);
    for (auto& [name, of_it] : points)
      watched_.push_back(std::make_unique<Watched>(name, std::move(of_it)));
    armed.store(!watched_.empty(), std::memory_order_release);
  }

  // Returns the number of this call among the calls of its operation; 0 if no trigger watches them.
  int64_t count(std::string_view operation) noexcept {
    if (!armed.load(std::memory_order_acquire))
      return 0;
    Watched* const watched = of(operation);
    return watched == nullptr ? 0 : ++watched->calls;
  }

  bool is_point(std::string_view operation, int64_t nth, bool after) noexcept {
    const Watched* const watched = of(operation);
    if (watched == nullptr)
      return false;
    const auto& points = watched->points;
    return std::find(points.begin(), points.end(), std::pair{nth, after}) != points.end();
  }

  // Holds the calling thread, whether or not it has the interpreter's lock. Throws the exceptions of Python.
  void reach(const char* operation, int64_t nth, bool after, const Tensors& tensors) {
    if (!armed.load(std::memory_order_relaxed) || !is_point(operation, nth, after) || Py_IsFinalizing())
      return;
    const pybind11::gil_scoped_acquire lock;
    const pybind11::error_scope callers_own;
    reach_(operation, nth, after ? "after" : "before", pybind11::arg("tensors") = tensors);
  }

 private:
  struct Watched {
    Watched(std::string operation, std::vector<std::pair<int64_t, bool>> at)
        : name(std::move(operation)), points(std::move(at)) {}
    const std::string name;
    const std::vector<std::pair<int64_t, bool>> points;
    std::atomic<int64_t> calls{0};
  };

  Watched* of(std::string_view operation) noexcept {
    for (const auto& watched : watched_)
      if (watched->name == operation)
        return watched.get();
    return nullptr;
  }

  std::vector<std::unique_ptr<Watched>> watched_; // constant once armed
  pybind11::function reach_;
};

// Never destroyed: a thread may still make calls while the process ends.
inline Holds& holds() {
  static Holds& the_holds = *new Holds;
  return the_holds;
}

// The tensors of a call, with the same interface as `Begin`.
class CallTensors {
 public:
  Tensors brought, left;

  CallTensors& in_place(const Tensors& tensors) {
    brought = left = tensors;
    return *this;
  }

  CallTensors& from_to(const Tensors& inputs, const Tensors& outputs) {
    brought = inputs;
    left = outputs;
    return *this;
  }

  template <class... Arguments>
  CallTensors& peer(const Arguments&...) {
    return *this;
  }

  template <class... Arguments>
  CallTensors& split(const Arguments&...) {
    return *this;
  }

  template <class... Arguments>
  CallTensors& options(const Arguments&...) {
    return *this;
  }

  template <class... Arguments>
  CallTensors& async(const Arguments&...) {
    return *this;
  }
};

} // namespace recorder
