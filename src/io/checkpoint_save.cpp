// Writing a checkpoint: dealing the tensors to shards, and putting the new files in the place of the old.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "graft/error.h"
#include "graft/safetensors.h"
#include "io/checkpoint_names.h"
#include "io/format/quote.h"
#include "io/safetensors_save.h"

namespace graft {
namespace {

namespace fs = std::filesystem;

/// huggingface_hub's split_torch_state_dict_into_shards: in the order given, a new shard when the next tensor
/// does not fit, and a shard of its own, closed at once, for a tensor over the limit.
std::vector<NamedTensors> split(const NamedTensors& tensors, uint64_t max_bytes) {
  std::vector<NamedTensors> shards;
  NamedTensors current;
  uint64_t filled = 0;
  for (const auto& item : tensors) {
    const uint64_t bytes = io::saved_bytes(item.first, item.second);
    if (bytes > max_bytes) {
      shards.push_back({item});
      continue;
    }
    if (bytes > max_bytes - filled) {
      shards.push_back(std::exchange(current, {}));
      filled = 0;
    }
    current.push_back(item);
    filled += bytes;
  }
  if (!current.empty() || shards.empty()) shards.push_back(std::move(current));
  return shards;
}

/// As Python's json.dumps(index, indent=2, sort_keys=True) + "\n" writes it.
std::string index_text(const std::vector<NamedTensors>& shards, const std::vector<std::string>& names) {
  nlohmann::json index;
  uint64_t total_size = 0, total_parameters = 0;
  for (size_t i = 0; i < shards.size(); ++i) {
    for (const auto& [name, tensor] : shards[i]) {
      index["weight_map"][name] = names[i];
      total_size += io::saved_bytes(name, tensor);
      total_parameters += static_cast<uint64_t>(tensor.numel());
    }
  }
  index["metadata"] = {{"total_size", total_size}, {"total_parameters", total_parameters}};
  return index.dump(2, ' ', /*ensure_ascii=*/true) + "\n";
}

void remove_old(const fs::path& path) {
  std::error_code error;
  fs::remove(path, error);
  if (error) {
    throw IoError("[checkpoint] cannot remove " + io::quote_path(path) +
                  " of the checkpoint that was there: " + error.message());
  }
}

void remove_stale(const fs::path& dir, std::string_view stem, const std::vector<std::string>& names) {
  // What a reader looks at first goes first, so that at no time it finds a file that names missing ones.
  if (names.size() > 1) remove_old(dir / io::single_name(stem));
  if (names.size() == 1) remove_old(dir / io::index_name(stem));
  std::vector<fs::path> shards;
  std::error_code error;
  for (fs::directory_iterator at(dir, error), end; !error && at != end; at.increment(error)) {
    const std::string name = at->path().filename().native();
    const bool kept = std::find(names.begin(), names.end(), name) != names.end();
    if (!kept && io::is_shard_name(name, stem)) shards.push_back(at->path());
  }
  if (error) throw IoError("[checkpoint] cannot list " + io::quote_path(dir) + ": " + error.message());
  for (const auto& shard : shards) remove_old(shard);
}

}  // namespace

void save_checkpoint(const fs::path& dir, const NamedTensors& tensors, const FileMetadata& metadata,
                     uint64_t max_shard_bytes, std::string_view stem) {
  io::check_stem(stem);
  std::set<std::string_view> seen;
  for (const auto& [name, tensor] : tensors) {
    if (!seen.insert(name).second) {
      throw UsageError("[checkpoint] cannot save two tensors of one name, " + io::quote(name));
    }
  }
  const auto shards = split(tensors, max_shard_bytes);
  std::vector<std::string> names{io::single_name(stem)};
  if (shards.size() > 1) {
    names.clear();
    for (size_t i = 0; i < shards.size(); ++i) names.push_back(io::shard_name(stem, i + 1, shards.size()));
  }
  std::error_code error;
  fs::create_directories(dir, error);
  if (error)
    throw IoError("[checkpoint] cannot create the folder " + io::quote_path(dir) + ": " + error.message());

  std::vector<io::AtomicFile> files;
  files.reserve(shards.size() + 1);
  for (size_t i = 0; i < shards.size(); ++i) {
    files.push_back(io::stage_safetensors(dir / names[i], shards[i], metadata));
  }
  if (shards.size() > 1) {
    files.emplace_back(dir / io::index_name(stem));
    files.back().write(index_text(shards, names));
    files.back().finish();
    // All is on disk. Shards of the same names are about to change one by one under the old index, which
    // would then describe a mixture of two models; with no index, a crash in these milliseconds leaves a
    // checkpoint that is refused.
    const auto taken = [&](const std::string& name) { return fs::exists(dir / name, error); };
    if (std::any_of(names.begin(), names.end(), taken)) remove_old(dir / io::index_name(stem));
  }
  for (auto& file : files) file.commit();
  remove_stale(dir, stem, names);
}

}  // namespace graft
