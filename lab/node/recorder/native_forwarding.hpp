// A c10d backend that forwards to another backend the calls that are not recorded.
#pragma once

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
    use_pg_for_symm_mem_rendezvous_ = inner_->getUsePgForSymmMemRendezvous();
    init();
  }

  // clang-format off
  const std::string getBackendName() const override { return inner_->getBackendName(); }
  c10::intrusive_ptr<Options> getBackendOptions() override { return inner_->getBackendOptions(); }
  void setGroupUid(const std::string& uid) override { pg_uid_ = uid; inner_->setGroupUid(uid); }
  bool supportsSplitting() const override { return inner_->supportsSplitting(); }
  bool supportsCoalescing() const override { return inner_->supportsCoalescing(); }
  bool supportsTimeEstimation() const override { return inner_->supportsTimeEstimation(); }
  bool supportsShrinking() const override { return inner_->supportsShrinking(); }
  void setTimeout(std::chrono::milliseconds timeout) override { inner_->setTimeout(timeout); }
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
  void suspend() override { inner_->suspend(); }
  void resume() override { inner_->resume(); }
  std::unordered_map<std::string, uint64_t> getMemoryStats() override { return inner_->getMemoryStats(); }
  // clang-format on

  void registerOnCompletionHook(std::function<void(std::shared_ptr<WorkInfo>)>&& hook) override {
    inner_->registerOnCompletionHook(std::move(hook));
    onCompletionHook_ = [](const std::shared_ptr<WorkInfo>&) {}; // so that hasHooks() is right
  }

 protected:
  const c10::intrusive_ptr<Backend> inner_;
};

} // namespace recorder
