#include "distributed/gloo/shares.h"

#include <ATen/ATen.h>

#include <mutex>
#include <thread>

namespace graft::dist {
namespace {

using Work = c10::intrusive_ptr<c10d::Work>;

constexpr int kRequest = 0;
/// A piece's answer has a tag of its own, so that several may be under way.
int answer(size_t piece) { return static_cast<int>(piece) + 1; }

class GlooShares : public Shares {
 public:
  GlooShares(std::shared_ptr<ProcessGroup> group, c10::intrusive_ptr<c10d::ProcessGroupGloo> gloo,
             PeerWatch& watch, std::vector<at::Tensor> pieces)
      : group_(std::move(group)),
        gloo_(std::move(gloo)),
        watch_(watch),
        pieces_(std::move(pieces)),
        server_([this] { serve(); }) {}

  ~GlooShares() override {
    {
      const std::lock_guard<std::mutex> lock(guard_);
      stop_ = true;
      if (serving_) serving_->abort();
    }
    server_.join();
    if (watch_.failed()) gloo_.release();  // its destructor would wait for a process that hangs
  }
  GlooShares(const GlooShares&) = delete;
  GlooShares& operator=(const GlooShares&) = delete;

  std::unique_ptr<Fetch> fetch(size_t piece, const at::Tensor& into) override;

 private:
  class Fetching;

  /// Answers requests until the end, or until a connection breaks: why, the watch finds out.
  void serve() {
    // A process that has nothing to ask for is silent for as long as it likes.
    constexpr std::chrono::hours for_ever{24 * 365};
    try {
      while (true) {
        std::vector<at::Tensor> request{at::zeros({1}, at::kLong)};
        const auto asked = gloo_->recvAnysource(request, kRequest);
        if (!done(asked, for_ever)) return;
        const auto piece = static_cast<size_t>(request[0].item<int64_t>());
        std::vector<at::Tensor> share{pieces_.at(piece)};
        if (!done(gloo_->send(share, asked->sourceRank(), answer(piece)), for_ever)) return;
      }
    } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): see above
    }
  }

  /// False when it is time to stop.
  bool done(const Work& work, std::chrono::milliseconds patience) {
    {
      const std::lock_guard<std::mutex> lock(guard_);
      if (stop_) return false;
      serving_ = work;
    }
    const bool complete = work->wait(patience);
    const std::lock_guard<std::mutex> lock(guard_);
    serving_.reset();
    return complete && !stop_;
  }

  std::shared_ptr<ProcessGroup> group_;
  c10::intrusive_ptr<c10d::ProcessGroupGloo> gloo_;
  PeerWatch& watch_;
  std::vector<at::Tensor> pieces_;
  std::mutex guard_;
  bool stop_ = false;
  Work serving_;
  std::thread server_;
};

class GlooShares::Fetching : public Fetch {
 public:
  Fetching(GlooShares& shares, size_t piece, const at::Tensor& into) : watch_(shares.watch_) {
    const int mine = shares.group_->rank();
    std::vector<at::Tensor> request{at::scalar_tensor(static_cast<int64_t>(piece), at::kLong).view({1})};
    try {
      for (int rank = 0; rank < shares.group_->size(); ++rank) {
        if (rank == mine) continue;
        std::vector<at::Tensor> row{into[rank]};
        works_.push_back(shares.gloo_->recv(row, rank, answer(piece)));
        works_.push_back(shares.gloo_->send(request, rank, kRequest));
      }
    } catch (const std::exception& error) {
      watch_.throw_cause(error.what());
    }
    into[mine].copy_(shares.pieces_.at(piece));
  }

  void wait() override {
    for (const auto& work : works_) watch_.wait_for_message(work);
    works_.clear();
  }

 private:
  PeerWatch& watch_;
  std::vector<Work> works_;
};

std::unique_ptr<Fetch> GlooShares::fetch(size_t piece, const at::Tensor& into) {
  return std::make_unique<Fetching>(*this, piece, into);
}

}  // namespace

std::unique_ptr<Shares> make_shares(const std::shared_ptr<ProcessGroup>& group,
                                    c10::intrusive_ptr<c10d::ProcessGroupGloo> gloo, PeerWatch& watch,
                                    std::vector<at::Tensor> pieces) {
  return std::make_unique<GlooShares>(group, std::move(gloo), watch, std::move(pieces));
}

}  // namespace graft::dist
