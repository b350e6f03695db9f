// A backend that records the beginning and the end of each call.
#pragma once

#include <optional>

#include "native_call.hpp"
#include "native_forwarding.hpp"
#include "native_holds.hpp"
#include "native_log.hpp"
#include "native_work.hpp"

namespace recorder {

class RecordingBackend : public ForwardingBackend {
 public:
  using ForwardingBackend::ForwardingBackend;

  // -- recorded calls

  WorkPtr broadcast(Tensors& tensors, const BroadcastOptions& options) override {
    return in_place({"broadcast", OpType::BROADCAST}, &Backend::broadcast, tensors, options);
  }

  WorkPtr allreduce(Tensors& tensors, const AllreduceOptions& options) override {
    return in_place({"all_reduce", OpType::ALLREDUCE}, &Backend::allreduce, tensors, options);
  }

  WorkPtr allreduce_sparse(Tensors& tensors, const AllreduceOptions& options) override {
    return in_place({"all_reduce", OpType::_ALLREDUCE_SPARSE}, &Backend::allreduce_sparse, tensors, options);
  }

  WorkPtr allreduce_coalesced(Tensors& tensors, const AllreduceCoalescedOptions& options) override {
    return in_place(
        {"all_reduce_coalesced", OpType::ALLREDUCE_COALESCED}, &Backend::allreduce_coalesced, tensors, options);
  }

  WorkPtr reduce(Tensors& tensors, const ReduceOptions& options) override {
    return in_place({"reduce", OpType::REDUCE}, &Backend::reduce, tensors, options);
  }

  WorkPtr allgather(TensorLists& outputs, Tensors& inputs, const AllgatherOptions& options) override {
    return from_to({"all_gather", OpType::ALLGATHER}, &Backend::allgather, outputs, inputs, options);
  }

  WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input, const AllgatherOptions& options) override {
    return from_to(
        {"all_gather_into_tensor", OpType::_ALLGATHER_BASE}, &Backend::_allgather_base, output, input, options);
  }

  WorkPtr allgather_coalesced(TensorLists& outputs, Tensors& inputs, const AllgatherOptions& options) override {
    return from_to(
        {"all_gather_coalesced", OpType::ALLGATHER_COALESCED}, &Backend::allgather_coalesced, outputs, inputs, options);
  }

  WorkPtr allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs, const AllgatherOptions& options) override {
    return from_to(
        {"all_gather_into_tensor_coalesced", OpType::COALESCED},
        &Backend::allgather_into_tensor_coalesced,
        outputs,
        inputs,
        options);
  }

  WorkPtr gather(TensorLists& outputs, Tensors& inputs, const GatherOptions& options) override {
    return from_to({"gather", OpType::GATHER}, &Backend::gather, outputs, inputs, options);
  }

  WorkPtr scatter(Tensors& outputs, TensorLists& inputs, const ScatterOptions& options) override {
    return from_to({"scatter", OpType::SCATTER}, &Backend::scatter, outputs, inputs, options);
  }

  WorkPtr reduce_scatter(Tensors& outputs, TensorLists& inputs, const ReduceScatterOptions& options) override {
    return from_to({"reduce_scatter", OpType::REDUCE_SCATTER}, &Backend::reduce_scatter, outputs, inputs, options);
  }

  WorkPtr _reduce_scatter_base(at::Tensor& output, at::Tensor& input, const ReduceScatterOptions& options) override {
    return from_to(
        {"reduce_scatter_tensor", OpType::_REDUCE_SCATTER_BASE}, &Backend::_reduce_scatter_base, output, input, options);
  }

  WorkPtr reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs, const ReduceScatterOptions& options)
      override {
    return from_to(
        {"reduce_scatter_tensor_coalesced", kReduceScatterTensorCoalesced},
        &Backend::reduce_scatter_tensor_coalesced,
        outputs,
        inputs,
        options);
  }

  WorkPtr alltoall(Tensors& outputs, Tensors& inputs, const AllToAllOptions& options) override {
    return from_to({"all_to_all", OpType::ALLTOALL}, &Backend::alltoall, outputs, inputs, options);
  }

  WorkPtr alltoall_base(
      at::Tensor& output,
      at::Tensor& input,
      std::vector<int64_t>& output_splits,
      std::vector<int64_t>& input_splits,
      const AllToAllOptions& options) override {
    return record(
        {"all_to_all_single", OpType::ALLTOALL_BASE},
        [&](auto& begin) { begin.from_to({input}, {output}).split(output_splits, input_splits).options(options); },
        [&] { return inner_->alltoall_base(output, input, output_splits, input_splits, options); });
  }

  WorkPtr send(Tensors& tensors, int destination, int tag) override {
    return record(
        {"send", OpType::SEND},
        [&](auto& begin) { begin.from_to(tensors, {}).peer(destination, tag); },
        [&] { return inner_->send(tensors, destination, tag); });
  }

  WorkPtr recv(Tensors& tensors, int source, int tag) override {
    return record(
        {"recv", OpType::RECV},
        [&](auto& begin) { begin.from_to({}, tensors).peer(source, tag); },
        [&] { return inner_->recv(tensors, source, tag); });
  }

  WorkPtr recvAnysource(Tensors& tensors, int tag) override {
    return record(
        {"recv", OpType::RECVANYSOURCE},
        [&](auto& begin) { begin.from_to({}, tensors).peer(-1, tag); },
        [&] { return inner_->recvAnysource(tensors, tag); });
  }

  WorkPtr barrier(const BarrierOptions& options) override {
    return record(
        {"barrier", OpType::BARRIER},
        [&](auto& begin) { begin.options(options); },
        [&] { return inner_->barrier(options); });
  }

  void monitoredBarrier(const BarrierOptions& options, bool wait_all_ranks) override {
    record(
        {"monitored_barrier", OpType::UNKNOWN},
        [&](auto& begin) { begin.async(false); },
        [&]() -> WorkPtr {
          inner_->monitoredBarrier(options, wait_all_ranks);
          return nullptr;
        });
  }

#ifdef C10D_BACKEND_HAS_HOOKS // torch 2.14; its other new names of calls forward to the methods above
  WorkPtr gather_single(at::Tensor& output, at::Tensor& input, const GatherOptions& options) override {
    return from_to({"gather", OpType::GATHER}, &Backend::gather_single, output, input, options);
  }

  WorkPtr gather_into_tensor(at::Tensor& output, at::Tensor& input, const GatherOptions& options) override {
    return from_to({"gather", OpType::GATHER}, &Backend::gather_into_tensor, output, input, options);
  }
#endif

  // -- methods that make another backend

  // since torch 2.9 and 2.10; see native_work.hpp
  c10::intrusive_ptr<Backend> split(
      const c10::intrusive_ptr<Store>& store,
      const std::vector<int>& ranks,
      const c10::intrusive_ptr<Options>& options) {
    return wrap(LAB_CALL_IF_PRESENT(*inner_, split(store, ranks, options), nullptr));
  }

  c10::intrusive_ptr<Backend> merge(
      const c10::intrusive_ptr<Store>& store,
      const c10::intrusive_ptr<Options>& options,
      const int& rank,
      const int& size) {
    return wrap(LAB_CALL_IF_PRESENT(*inner_, merge(store, options, rank, size), nullptr));
  }

  c10::intrusive_ptr<Backend> shrink(
      const std::vector<int64_t>& excluded,
      int flags,
      const c10::intrusive_ptr<Options>& options) {
    return wrap(LAB_CALL_IF_PRESENT(*inner_, shrink(excluded, flags, options), nullptr));
  }

  static c10::intrusive_ptr<Backend> wrap(c10::intrusive_ptr<Backend> backend) {
    if (!backend || dynamic_cast<RecordingBackend*>(backend.get()) != nullptr)
      return backend;
    return c10::make_intrusive<RecordingBackend>(std::move(backend));
  }

 private:
  template <class Method, class Options>
  WorkPtr in_place(Operation operation, Method method, Tensors& tensors, const Options& options) {
    return record(
        operation,
        [&](auto& begin) { begin.in_place(tensors).options(options); },
        [&] { return (*inner_.*method)(tensors, options); });
  }

  template <class Method, class Outputs, class Inputs, class Options>
  WorkPtr from_to(Operation operation, Method method, Outputs& outputs, Inputs& inputs, const Options& options) {
    return record(
        operation,
        [&](auto& begin) { begin.from_to(flat(inputs), flat(outputs)).options(options); },
        [&] { return (*inner_.*method)(outputs, inputs, options); });
  }

  template <class Describe, class Issue>
  WorkPtr record(Operation operation, Describe&& describe, Issue&& issue) {
    if (holds().armed.load(std::memory_order_relaxed)) [[unlikely]]
      return count_and_record(operation, describe, issue);
    return begin_and_end(operation, describe, issue);
  }

  // Like `record`, but holds the call before it is issued, or after it has ended, if a trigger watches it.
  template <class Describe, class Issue>
  WorkPtr count_and_record(Operation operation, Describe&& describe, Issue&& issue) {
    const int64_t nth = holds().count(operation.name);
    const bool before = nth > 0 && holds().is_point(operation.name, nth, false);
    const bool after = nth > 0 && holds().is_point(operation.name, nth, true);
    if (!before && !after)
      return begin_and_end(operation, describe, issue);
    CallTensors tensors;
    describe(tensors);
    if (before)
      holds().reach(operation.name, nth, false, tensors.brought);
    if (!after)
      return begin_and_end(operation, describe, issue);
    WorkPtr work;
    try {
      work = begin_and_end(operation, describe, issue);
      wait_ahead(work);
    } catch (...) { // a failed call has ended, too
      holds().reach(operation.name, nth, true, tensors.left);
      throw;
    }
    holds().reach(operation.name, nth, true, tensors.left);
    return work;
  }

  // Writes the begin line, issues the call, and arranges the end line. Holds no lock meanwhile.
  template <class Describe, class Issue>
  WorkPtr begin_and_end(Operation operation, Describe&& describe, Issue&& issue) {
    std::optional<End> end = begin(operation, describe);
    if (!end)
      return issue();
    WorkPtr work;
    try {
      work = issue();
    } catch (...) {
      end->write(std::current_exception());
      throw;
    }
    if (!work) {
      end->write();
      return work;
    }
    if (const auto future = future_of(work, operation.type))
      return c10::make_intrusive<FutureWork>(std::move(work), future, *std::move(end), operation.type);
    return c10::make_intrusive<RecordedWork>(std::move(work), *std::move(end), operation.type);
  }

  // Returns nothing if recording is off, or if the recorder cannot describe the call; the call is issued either way.
  template <class Describe>
  std::optional<End> begin(Operation operation, Describe&& describe) noexcept {
    if (!log().on.load(std::memory_order_relaxed))
      return std::nullopt;
    follow_reconfigure();
    const int64_t seq = isP2POp(operation.type) ? 0 : ++collectives_;
    try {
      Begin begin(operation.name, pg_uid_, seq);
      describe(begin);
      return begin.write();
    } catch (...) { // for example symbolic shapes
      return std::nullopt;
    }
  }

  c10::intrusive_ptr<Future> future_of(const WorkPtr& work, OpType type) {
    const uint32_t bit = 1u << (static_cast<uint8_t>(type) & 31);
    if (without_future_.load(std::memory_order_relaxed) & bit)
      return nullptr;
    try {
      if (auto future = work->getFuture())
        return future;
    } catch (const std::exception&) { // no futures for such calls; the exception is slow, so ask only once
    }
    without_future_ |= bit;
    return nullptr;
  }

  std::atomic<int64_t> collectives_{0};
  // One bit for each type of operation whose works have no future.
  std::atomic<uint32_t> without_future_{0};
};

} // namespace recorder
