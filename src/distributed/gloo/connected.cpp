// Several processes over torch's Gloo backend; tensors on GPUs go by NCCL.
#include "distributed/connected.h"

#include <ATen/ATen.h>
#include <c10/util/Flags.h>

#include <torch/csrc/autograd/autograd.h>
#include <csignal>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <torch/csrc/distributed/c10d/reducer.hpp>

#include "distributed/gloo/peer_watch.h"
#include "distributed/gloo/shares.h"
#include "distributed/nccl_backend.h"
#include "graft/error.h"

C10_DECLARE_int(caffe2_log_level);

namespace graft::dist {
namespace {

c10::intrusive_ptr<c10d::TCPStore> meet(const ProcessGroupOptions& o) {
  c10d::TCPStoreOptions how;
  how.port = o.master_port;
  how.isServer = o.rank == 0;
  how.numWorkers = static_cast<size_t>(o.size);
  how.timeout = std::min<std::chrono::milliseconds>(o.timeout, std::chrono::minutes(5));
  try {
    return c10::make_intrusive<c10d::TCPStore>(o.master_addr, how);
  } catch (const std::exception& error) {
    const std::string text = error.what();
    throw Error("[dist] rank " + std::to_string(o.rank) + " cannot meet the others at " + o.master_addr +
                ":" + std::to_string(o.master_port) +
                " (MASTER_ADDR, MASTER_PORT): " + text.substr(0, text.find('\n')));
  }
}

/// Gloo otherwise listens where the machine's own name leads, which need not be reachable even from itself.
bool is_local(const std::string& address) {
  return address == "localhost" || address == "::1" || address.starts_with("127.");
}

/// The group as torch's Reducer uses it: it has calls of its own beside those for the gradients, and waits in
/// them. On GPUs it is the stream that waits: a process that is gone is noticed in the next call from the
/// CPU.
class WatchedGroup : public c10d::ProcessGroup {
 public:
  WatchedGroup(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size, PeerWatch& watch)
      : c10d::ProcessGroup(store, rank, size), watch_(watch) {}

  c10::intrusive_ptr<c10d::Work> allreduce(std::vector<at::Tensor>& tensors,
                                           const c10d::AllreduceOptions& options) override {
    const auto device = tensors.at(0).device().type();
    auto work = getBackend(device)->allreduce(tensors, options);
    return device == c10::DeviceType::CPU ? c10d::Work::create_from_future(watch_.guarded(work)) : work;
  }

 private:
  PeerWatch& watch_;
};

/// When a process is gone, torch reports each broken connection with a C++ backtrace. One error that says who
/// it was is enough, unless somebody asked for more.
void hush_torch() {
  constexpr int kErrorsOnly = 2;
  if (!std::getenv("TORCH_CPP_LOG_LEVEL"))
    FLAGS_caffe2_log_level = std::max(FLAGS_caffe2_log_level, kErrorsOnly);
}

/// Writing to a process that is gone would end this one too, before it can say who is gone. torch relies on
/// Python, which ignores the signal.
void survive_broken_pipes() {
  struct sigaction now{};
  if (sigaction(SIGPIPE, nullptr, &now) == 0 && now.sa_handler == SIG_DFL) std::signal(SIGPIPE, SIG_IGN);
}

class GlooGroup : public ProcessGroup {
 public:
  explicit GlooGroup(const ProcessGroupOptions& o)
      : store_((hush_torch(), survive_broken_pipes(), meet(o))),
        rank_(o.rank),
        size_(o.size),
        timeout_(o.timeout),
        local_(is_local(o.master_addr)),
        watch_(new PeerWatch(store_->clone(), o)),
        gloo_(connected_by(store_)) {
    group_ = c10::make_intrusive<WatchedGroup>(store_, rank_, size_, *watch_);
    group_->setBackend(c10::DeviceType::CPU, c10d::ProcessGroup::BackendType::GLOO, gloo_);
    group_->setDefaultBackend(c10d::ProcessGroup::BackendType::GLOO);
  }

  ~GlooGroup() override {
    // The destructors wait for calls, and one with a process that hangs does not end: then they are left
    // alone.
    if (watch_->failed()) {
      gloo_.release();
      nccl_.release();
      group_.release();
    } else if (nccl_) {
      nccl_->shutdown();
    }
  }
  GlooGroup(const GlooGroup&) = delete;
  GlooGroup& operator=(const GlooGroup&) = delete;

  int rank() const override { return rank_; }
  int size() const override { return size_; }

  void all_reduce(const at::Tensor& tensor) override {
    in_place(tensor, [&](c10d::Backend& by, std::vector<at::Tensor>& one) { return by.allreduce(one); });
  }

  void broadcast(const at::Tensor& tensor, int from) override {
    c10d::BroadcastOptions options;
    options.rootRank = from;
    in_place(tensor,
             [&](c10d::Backend& by, std::vector<at::Tensor>& one) { return by.broadcast(one, options); });
  }

  std::vector<at::Tensor> all_gather(const at::Tensor& tensor) override {
    const auto mine = tensor.detach().contiguous();
    std::vector<std::vector<at::Tensor>> all(1);
    all[0].reserve(static_cast<size_t>(size_));
    for (int i = 0; i < size_; ++i) all[0].push_back(at::empty_like(mine));
    std::vector<at::Tensor> one{mine};
    wait(mine.device(), [&](c10d::Backend& by) { return by.allgather(all, one); });
    return all[0];
  }

  void barrier() override {
    wait(at::kCPU, [](c10d::Backend& by) { return by.barrier(); });
  }

  void fail(const std::string& why) override { watch_->fail(why); }

  /// Other connections, for calls in another order. For all processes to ask for.
  c10::intrusive_ptr<c10d::ProcessGroupGloo> another() {
    return connected_by(c10::make_intrusive<c10d::PrefixStore>("graft/" + std::to_string(others_++), store_));
  }

  PeerWatch& watch() { return *watch_; }
  /// What tensors there are sent by. For all processes to ask for.
  c10d::Backend& backend(const at::Device& device) {
    if (device.is_cpu()) return *gloo_;
    if (!device.is_cuda())
      throw UsageError("[dist] tensors on " + device.str() + " cannot be sent; known: cpu, cuda");
    if (!nccl_) {
      nccl_ =
          connect_nccl(c10::make_intrusive<c10d::PrefixStore>("graft/nccl", store_), rank_, size_, timeout_);
      group_->setBackend(c10::DeviceType::CUDA, c10d::ProcessGroup::BackendType::NCCL, nccl_);
      // Else the GPU would wait for a process that is gone, and this one for the GPU.
      watch_->on_failure([nccl = nccl_] { nccl->abort(); });
    }
    return *nccl_;
  }
  const c10::intrusive_ptr<c10d::ProcessGroup>& torch_group() const { return group_; }

 private:
  c10::intrusive_ptr<c10d::ProcessGroupGloo> connected_by(const c10::intrusive_ptr<c10d::Store>& store) {
    auto options = c10d::ProcessGroupGloo::Options::create(timeout_);
    options->devices.push_back(local_ ? c10d::ProcessGroupGloo::createDeviceForHostname("127.0.0.1")
                                      : c10d::ProcessGroupGloo::createDefaultDevice());
    try {
      return c10::make_intrusive<c10d::ProcessGroupGloo>(store, rank_, size_, options);
    } catch (const std::exception& error) {
      watch_->throw_cause(error.what());
    }
  }

  template <class Call>
  void wait(const at::Device& device, const Call& call) {
    auto& by = backend(device);
    c10::intrusive_ptr<c10d::Work> work;
    try {
      work = call(by);
      if (!device.is_cpu()) work->wait();  // it is the stream that waits
    } catch (const std::exception& error) {
      watch_->throw_cause(error.what());
    }
    if (device.is_cpu()) watch_->wait(work);
  }

  /// Both take dense tensors only.
  template <class Call>
  void in_place(const at::Tensor& tensor, const Call& call) {
    const at::NoGradGuard no_grad;
    const bool dense = tensor.is_non_overlapping_and_dense();
    std::vector<at::Tensor> one{dense ? tensor.detach() : tensor.detach().contiguous()};
    wait(tensor.device(), [&](c10d::Backend& by) { return call(by, one); });
    if (!dense) tensor.copy_(one[0]);
  }

  c10::intrusive_ptr<c10d::TCPStore> store_;
  int rank_, size_;
  std::chrono::milliseconds timeout_;
  bool local_;
  int others_ = 0;
  std::unique_ptr<PeerWatch, PeerWatch::End> watch_;
  c10::intrusive_ptr<c10d::ProcessGroupGloo> gloo_;
  c10::intrusive_ptr<c10d::Backend> nccl_;  // once there is a tensor on a GPU
  c10::intrusive_ptr<c10d::ProcessGroup> group_;
};

/// What torch's Reducer does with a full bucket. (Its own way divides by the number of processes: here each
/// process's loss is already its share of the whole.)
class SumBucket : public c10d::CommHookInterface {
 public:
  explicit SumBucket(std::shared_ptr<GlooGroup> group) : group_(std::move(group)) {}

  c10::intrusive_ptr<c10::ivalue::Future> runHook(c10d::GradBucket& bucket) override {
    std::vector<at::Tensor> one{bucket.getBufferRef()};
    const auto work = group_->backend(one[0].device()).allreduce(one);
    return one[0].is_cpu() ? group_->watch().guarded(work) : work->getFuture();
  }
  at::Tensor parseHookResult(const c10::IValue& result) override {
    return c10d::detail::parseCppCommHookResult(result);
  }

 private:
  std::shared_ptr<GlooGroup> group_;
};

class ReducedGradients : public GradientSum {
 public:
  ReducedGradients(const std::shared_ptr<GlooGroup>& group,
                   const std::vector<std::pair<std::string, at::Tensor>>& parameters)
      : group_(group) {
    // torch.nn.parallel.DistributedDataParallel's sizes: a small first bucket, so that sending begins soon.
    constexpr size_t kFirstBytes = 1 << 20, kBytes = 25 << 20;
    std::vector<at::Tensor> tensors;
    std::unordered_map<size_t, std::string> names;
    tensors.reserve(parameters.size());
    for (const auto& [name, tensor] : parameters) {
      names.emplace(tensors.size(), name);
      tensors.push_back(tensor);
    }
    if (!tensors.empty()) group->backend(tensors[0].device());  // the Reducer asks the group for it
    const std::vector<bool> sparse(tensors.size(), false);
    auto [buckets, limits] = c10d::compute_bucket_assignment_by_size(tensors, {kFirstBytes, kBytes}, sparse);
    // Gradients come from the last layer to the first.
    std::reverse(buckets.begin(), buckets.end());
    reducer_ = std::make_shared<c10d::Reducer>(
        std::move(tensors), std::move(buckets), group->torch_group(), sparse, static_cast<int64_t>(kBytes),
        /*find_unused_parameters=*/true, /*gradient_as_bucket_view=*/false, std::move(names),
        static_cast<int64_t>(kFirstBytes), /*skip_all_reduce_unused_params=*/false,
        /*use_python_reducer=*/false, std::vector<int64_t>{});
    reducer_->register_comm_hook(std::make_unique<SumBucket>(group));
  }

  void backward(const at::Tensor& loss, const at::Tensor& weight) override {
    try {
      prepare(loss);
      torch::autograd::backward({loss}, {weight});
    } catch (const std::exception& error) {
      if (!group_->watch().broken()) throw;  // it has nothing to do with the others
      group_->watch().throw_cause(error.what());
    }
  }

 private:
  void prepare(const at::Tensor& loss) {
    // It advises not to look for unused parameters where there are none, which nobody knows beforehand.
    const c10::WarningUtils::WarningHandlerGuard quiet(&no_advice_);
    reducer_->prepare_for_forward();
    reducer_->prepare_for_backward({loss});
  }

  struct NoAdvice : c10::WarningHandler {
    void process(const c10::Warning&) override {}
  };
  std::shared_ptr<GlooGroup> group_;
  NoAdvice no_advice_;
  std::shared_ptr<c10d::Reducer> reducer_;
};

}  // namespace

std::shared_ptr<ProcessGroup> connect(const ProcessGroupOptions& options) {
  return std::make_shared<GlooGroup>(options);
}

std::unique_ptr<Shares> share(const std::shared_ptr<ProcessGroup>& group, std::vector<at::Tensor> pieces) {
  const auto gloo = std::dynamic_pointer_cast<GlooGroup>(group);
  if (!gloo) return nullptr;
  for (const auto& piece : pieces)
    if (!piece.is_cpu())
      throw Error("[dist] what is shared out is kept on the CPU, not on " + piece.device().str());
  return make_shares(group, gloo->another(), gloo->watch(), std::move(pieces));
}

std::unique_ptr<GradientSum> sum_gradients(
    const std::shared_ptr<ProcessGroup>& group,
    const std::vector<std::pair<std::string, at::Tensor>>& parameters) {
  const auto gloo = std::dynamic_pointer_cast<GlooGroup>(group);
  if (!gloo) return nullptr;
  return std::make_unique<ReducedGradients>(gloo, parameters);
}

}  // namespace graft::dist
