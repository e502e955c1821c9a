// What a request asks for (child.h): the files of a row, or its work ready to be called.
#pragma once
#include "bench/work.h"

namespace graft::cli::bench {

/// A request to load as Work: a model, an op, or the plain copy that bandwidth is measured
/// in.
std::unique_ptr<Work> load_work(const nlohmann::ordered_json& request);

/// A request to make: the checkpoint and the inputs of a row, random but always the same.
void make_files(const nlohmann::ordered_json& request);

}  // namespace graft::cli::bench
