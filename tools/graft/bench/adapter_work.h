// graft's side of a bench row with adapters. bench/adapter_work.py is the same in Python.
#pragma once
#include "bench/work.h"
#include "graft/peft.h"

namespace graft::cli::bench {

/// A request to load whose "adapter" is a configuration: calls with adapters, or the loading of one.
std::unique_ptr<Work> load_adapter_work(const nlohmann::ordered_json& request);

/// The first of the row's adapters on a model, to be trained.
std::shared_ptr<PeftModel> first_adapter_on(std::shared_ptr<PreTrainedModel> model,
                                            const nlohmann::ordered_json& request);

/// A request to make: the files of the adapters. Fresh ones with noise on what is trained, since most fresh
/// adapters change nothing, and results that are the base model's would hide that somebody left them out.
void make_adapters(const nlohmann::ordered_json& request);

}  // namespace graft::cli::bench
