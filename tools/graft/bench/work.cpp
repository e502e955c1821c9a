#include "bench/work.h"

namespace graft::cli::bench {

CompileOptions options_for(const std::string& how) {
  return {.backend = backend_named(how), .fullgraph = true};
}

std::filesystem::path folder_of(const nlohmann::ordered_json& request) {
  return request.at("folder").get<std::string>();
}

}  // namespace graft::cli::bench
