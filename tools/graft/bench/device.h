// What the harness asks of the device that a row runs on. It is built with and without CUDA.
#pragma once
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace graft::cli::bench {

/// Error that says what to do: there is no such device here.
void require_device(const std::string& device);

/// Names of the GPUs of this machine; none where no driver tells.
std::vector<std::string> gpu_names();

/// Until the device has done all it was given.
void wait_for(const std::string& device);

/// The most memory that `call` has a device hold, with all that is there already: {"peak_bytes": taken from
/// the device, "allocated_bytes": of these by tensors}. Nothing for the CPU, which rows measure themselves.
nlohmann::ordered_json peak_of(const std::string& device, const std::function<void()>& call);

}  // namespace graft::cli::bench
