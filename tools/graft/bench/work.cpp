#include "bench/work.h"

#include "io/dtype_names.h"

namespace graft::cli::bench {

CompileOptions options_for(const std::string& how) {
  if (how == "reduce-overhead" || how == "max-autotune") return {.mode = mode_named(how), .fullgraph = true};
  return {.backend = backend_named(how), .fullgraph = true};
}

LoadOptions load_options(const nlohmann::ordered_json& request) {
  return {.dtype = io::floating_dtype(request.at("dtype").get<std::string>(), "the row's dtype"),
          .device = at::Device(request.at("device").get<std::string>())};
}

std::filesystem::path folder_of(const nlohmann::ordered_json& request) {
  return request.at("folder").get<std::string>();
}

}  // namespace graft::cli::bench
