// The child process of `graft bench` that runs graft's side of a row.
#pragma once

namespace graft::cli::bench {

/// Answers requests (child.h) on standard input until it is told to quit or the parent is gone.
void serve();

}  // namespace graft::cli::bench
