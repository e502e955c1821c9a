// What one process keeps for all, over torch's Gloo: requests and answers beside the collective calls.
#pragma once
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "distributed/connected.h"
#include "distributed/gloo/peer_watch.h"

namespace graft::dist {

/// `gloo` is for this alone. The group, which has the watch, is kept.
std::unique_ptr<Shares> make_shares(const std::shared_ptr<ProcessGroup>& group,
                                    c10::intrusive_ptr<c10d::ProcessGroupGloo> gloo, PeerWatch& watch,
                                    std::vector<at::Tensor> pieces);

}  // namespace graft::dist
