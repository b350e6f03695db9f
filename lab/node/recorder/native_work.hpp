// The handle of a call, which records its end.
#pragma once

#include <ATen/core/ivalue.h>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <torch/csrc/utils/pybind.h>

#include <atomic>
#include <exception>
#include <functional>
#include <optional>
#include <stdexcept>
#include <utility>

#include "native_call.hpp"

namespace recorder {

// A method that only newer versions of torch have. Such methods override without the word, which older versions reject.
// There nothing calls them, and `otherwise` only makes them compile.
#define LAB_CALL_IF_PRESENT(object, call, otherwise) \
  [&](auto& inner) {                                 \
    if constexpr (requires { inner.call; })          \
      return inner.call;                             \
    else                                             \
      return otherwise;                              \
  }(object)

using Future = c10::ivalue::Future;
// Older versions of torch have no name for this type of operation.
inline constexpr c10d::OpType kReduceScatterTensorCoalesced = [](auto known) {
  using Types = decltype(known);
  if constexpr (requires { Types::REDUCE_SCATTER_TENSOR_COALESCED; })
    return Types::REDUCE_SCATTER_TENSOR_COALESCED;
  else
    return static_cast<Types>(19);
}(c10d::OpType::UNKNOWN);
using WorkPtr = c10::intrusive_ptr<c10d::Work>;

// The handle of a call. A wait for it, or for its future, returns after the end line is written, so that the recorded
// results are those of the call.
class ForwardingWork : public c10d::Work {
 public:
  ForwardingWork(WorkPtr inner, c10d::OpType type) : Work(-1, type), inner_(std::move(inner)) {}

  // clang-format off
  bool wait(std::chrono::milliseconds timeout) override { return inner_->wait(timeout); }
  bool isCompleted() override { return inner_->isCompleted(); }
  bool isSuccess() const override { return inner_->isSuccess(); }
  std::exception_ptr exception() const override { return inner_->exception(); }
  int sourceRank() const override { return inner_->sourceRank(); }
  Tensors result() override { return inner_->result(); }
  void synchronize() override { inner_->synchronize(); }
  void abort() override { inner_->abort(); }
  c10::intrusive_ptr<Future> getFuture() override { return inner_->getFuture(); }
  c10::intrusive_ptr<Future> getFutureResult() override { return inner_->getFutureResult(); }
  float getDuration() const override { return inner_->getDuration(); }
  uint64_t getSequencenumber() const override { return inner_->getSequencenumber(); }
  // since torch 2.9, 2.14, and 2.15
  void blockCurrentStream() { LAB_CALL_IF_PRESENT(*inner_, blockCurrentStream(), void()); }
  std::chrono::milliseconds getTimeout() const { return LAB_CALL_IF_PRESENT(*inner_, getTimeout(), kNoTimeout); }
  uint64_t getCompletionKey() const { return LAB_CALL_IF_PRESENT(*inner_, getCompletionKey(), uint64_t{0}); }
  // clang-format on

 protected:
  const WorkPtr inner_;
};

// The handle of a call whose backend has a future. A future wakes its waiters before it runs callbacks, so waiters get
// a second future.
class FutureWork : public ForwardingWork {
 public:
  FutureWork(WorkPtr inner, const c10::intrusive_ptr<Future>& future, End end, c10d::OpType type)
      : ForwardingWork(std::move(inner), type), written_(future->createInstance(future->elementType())) {
    future->addCallback(
        [end = std::move(end), written = written_](Future& done) {
          end.write(done.hasError() ? done.exception_ptr() : nullptr);
          if (done.hasError())
            written->setError(done.exception_ptr());
          else
            written->markCompleted(done.value());
        },
        false);
  }

  c10::intrusive_ptr<Future> getFuture() override {
    return written_;
  }

 private:
  const c10::intrusive_ptr<Future> written_;
};

// The handle of a call whose backend has no future (gloo's send, recv, reduce_scatter). Writes the end line when a wait
// returns, or when isCompleted() is true.
class RecordedWork : public ForwardingWork {
 public:
  RecordedWork(WorkPtr inner, End end, c10d::OpType type)
      : ForwardingWork(std::move(inner), type), end_(std::move(end)), type_(type) {}

  // Waits now, and keeps the outcome for the next wait: some backends allow only one.
  void wait_ahead() {
    try {
      const bool done = wait(kNoTimeout);
      ahead_ = [done] { return done; };
    } catch (...) {
      ahead_ = [error = std::current_exception()]() -> bool { std::rethrow_exception(error); };
    }
  }

  bool wait(std::chrono::milliseconds timeout) override {
    if (ahead_)
      return std::exchange(ahead_, nullptr)();
    try {
      const bool done = inner_->wait(timeout);
      finish(done ? nullptr : std::make_exception_ptr(std::runtime_error("aborted")));
      return done;
    } catch (...) {
      finish(std::current_exception());
      throw;
    }
  }

  bool isCompleted() override {
    const bool done = inner_->isCompleted();
    if (done)
      finish(inner_->isSuccess() ? nullptr : inner_->exception());
    return done;
  }

 private:
  void finish(const std::exception_ptr& error) {
    if (!ended_.exchange(true))
      end_.write(error, !error && type_ == c10d::OpType::RECVANYSOURCE ? inner_->sourceRank() : -1);
  }

  const End end_;
  const c10d::OpType type_;
  std::atomic<bool> ended_{false};
  std::function<bool()> ahead_; // the outcome of wait_ahead()
};

// Waits until a call has ended; the next wait returns its outcome, or throws its error.
inline void wait_ahead(const WorkPtr& work) {
  if (!work)
    return;
  std::optional<pybind11::gil_scoped_release> released; // the thread that completes it may need the interpreter's lock
  if (PyGILState_Check())
    released.emplace();
  if (auto* const recorded = dynamic_cast<RecordedWork*>(work.get())) {
    recorded->wait_ahead();
    return;
  }
  try {
    work->wait(kNoTimeout);
  } catch (...) {
  }
}

} // namespace recorder
