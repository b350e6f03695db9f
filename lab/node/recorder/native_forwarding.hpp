// A c10d backend that forwards to another backend the calls that are not recorded.
#pragma once

#include <torch/csrc/api/include/torch/version.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "native_work.hpp"

namespace recorder {

using namespace c10d;

class ForwardingBackend : public Backend {
 public:
  explicit ForwardingBackend(c10::intrusive_ptr<Backend> inner)
      : Backend(inner->getRank(), inner->getSize()), inner_(std::move(inner)) {
    pg_uid_ = inner_->getGroupUid();
    pg_desc_ = inner_->getGroupDesc();
    bound_device_id_ = inner_->getBoundDeviceId();
    [](auto& self, auto& inner) {
      if constexpr (requires { self.setUsePgForSymmMemRendezvous(inner.getUsePgForSymmMemRendezvous()); })
        self.setUsePgForSymmMemRendezvous(inner.getUsePgForSymmMemRendezvous());
    }(static_cast<Backend&>(*this), *inner_);
    init();
  }

  // clang-format off
  const std::string getBackendName() const override { return inner_->getBackendName(); }
  bool supportsSplitting() const override { return inner_->supportsSplitting(); }
  bool supportsCoalescing() const override { return inner_->supportsCoalescing(); }
  bool supportsTimeEstimation() const override { return inner_->supportsTimeEstimation(); }
  void startCoalescing() override { inner_->startCoalescing(); }
  WorkPtr endCoalescing() override { return inner_->endCoalescing(); }
  void setSequenceNumberForGroup() override { inner_->setSequenceNumberForGroup(); }
  uint64_t getSequenceNumberForGroup() override { return inner_->getSequenceNumberForGroup(); }
  void waitForPendingWorks() override { inner_->waitForPendingWorks(); }
  void enableCollectivesTiming() override { inner_->enableCollectivesTiming(); }
  void eagerConnectSingleDevice(at::Device device) override { inner_->eagerConnectSingleDevice(device); }
  ErrorType getError() override { return inner_->getError(); }
  std::shared_ptr<c10::Allocator> getMemAllocator() override { return inner_->getMemAllocator(); }
  at::Tensor allocateTensor(long size, at::TensorOptions options) override { return inner_->allocateTensor(size, options); }
  bool supportsTensorAlloc(c10::DeviceIndex device) override { return inner_->supportsTensorAlloc(device); }
  void abort() override { inner_->abort(); }
  void shutdown() override { inner_->shutdown(); }

  // since torch 2.9 to 2.13
  void setTimeout(std::chrono::milliseconds timeout) { LAB_CALL_IF_PRESENT(*inner_, setTimeout(timeout), void()); }
  c10::intrusive_ptr<Options> getBackendOptions() { return LAB_CALL_IF_PRESENT(*inner_, getBackendOptions(), nullptr); }
  void setGroupUid(const std::string& uid) { pg_uid_ = uid; inner_->setGroupUid(uid); }
  bool supportsShrinking() const { return LAB_CALL_IF_PRESENT(*inner_, supportsShrinking(), false); }
  void suspend() { LAB_CALL_IF_PRESENT(*inner_, suspend(), void()); }
  void resume() { LAB_CALL_IF_PRESENT(*inner_, resume(), void()); }
  std::unordered_map<std::string, uint64_t> getMemoryStats() {
    return LAB_CALL_IF_PRESENT(*inner_, getMemoryStats(), (std::unordered_map<std::string, uint64_t>{}));
  }

  // since torch 2.14; PyTorch names two of the macros for backends outside of it
#ifdef C10D_BACKEND_HAS_RECONFIGURE
  void addEphemeralTimeout(const std::chrono::milliseconds& timeout) override { inner_->addEphemeralTimeout(timeout); }
  std::optional<at::Device> getBoundDeviceId() const override { return inner_->getBoundDeviceId(); }
  void setBoundDeviceId(std::optional<at::Device> device) override {
    Backend::setBoundDeviceId(device);
    inner_->setBoundDeviceId(device);
  }
  bool supportsReconfigure() const override { return inner_->supportsReconfigure(); }
  ReconfigureHandle get_reconfigure_handle() const override { return inner_->get_reconfigure_handle(); }
  WorkPtr reconfigure(const ReconfigureOptions& options) override {
    auto work = inner_->reconfigure(options);
    follow_reconfigure();
    return work;
  }
#endif
#ifdef C10D_BACKEND_HAS_WINDOW
  bool supportsWindow() const override { return inner_->supportsWindow(); }
  c10::intrusive_ptr<Window> new_window(const std::optional<at::Tensor>& tensor) override { return inner_->new_window(tensor); }
#endif
#ifdef C10D_BACKEND_HAS_HOOKS
  void registerAbortHook(int64_t id, AbortHook hook) override { inner_->registerAbortHook(id, std::move(hook)); }
  void unregisterAbortHook(int64_t id) override { inner_->unregisterAbortHook(id); }
#endif

#if TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= 15
  bool isInitialized() override { return inner_->isInitialized(); }
  void startTimeEstimate() override { inner_->startTimeEstimate(); }
  float endTimeEstimate() override { return inner_->endTimeEstimate(); }
  bool supportsAbortHooks() const override { return inner_->supportsAbortHooks(); }
  bool supportsCompletionHooks() const override { return inner_->supportsCompletionHooks(); }
  void registerCompletionHook(int64_t id, CompletionHook hook) override { inner_->registerCompletionHook(id, std::move(hook)); }
  void unregisterCompletionHook(int64_t id) override { inner_->unregisterCompletionHook(id); }
#endif
  // clang-format on

  void registerOnCompletionHook(std::function<void(std::shared_ptr<WorkInfo>)>&& hook) override {
    inner_->registerOnCompletionHook(std::move(hook));
    onCompletionHook_ = [](const std::shared_ptr<WorkInfo>&) {}; // so that hasHooks() is right
  }

 protected:
  // Takes over the rank and size that a reconfigured backend has; some have them only once its work has completed.
  void follow_reconfigure() {
#ifdef C10D_BACKEND_HAS_RECONFIGURE
    rank_ = inner_->getRank();
    size_ = inner_->getSize();
#endif
  }

  const c10::intrusive_ptr<Backend> inner_;
};

} // namespace recorder
