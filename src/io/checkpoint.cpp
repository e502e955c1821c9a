// Opening a checkpoint: finding its files, and holding the index to what the shards contain.
#include <algorithm>
#include <array>

#include "graft/error.h"
#include "graft/safetensors.h"
#include "io/checkpoint_names.h"
#include "io/format/json.h"
#include "io/format/quote.h"

namespace graft {
namespace {

namespace fs = std::filesystem;
using io::quote;
using io::quote_path;

constexpr std::array<std::string_view, 6> kPickleExtensions = {".bin",  ".pt",  ".pth",
                                                               ".ckpt", ".pkl", ".pickle"};

bool is_pickle(const fs::path& path) {
  return std::find(kPickleExtensions.begin(), kPickleExtensions.end(), path.extension().native()) !=
         kPickleExtensions.end();
}

[[noreturn]] void refuse_pickle(const fs::path& path, std::string_view stem) {
  throw FormatError(
      "[checkpoint] " + quote_path(path) +
      " is a pickle file, which can run code when it is read, so graft does not read it; convert it with: "
      "python -c \"import sys, torch, safetensors.torch as s; s.save_file({k: v.clone().contiguous() for k, "
      "v in "
      "torch.load(sys.argv[1], weights_only=True).items()}, sys.argv[2], {'format': 'pt'})\" " +
      path.filename().native() + " " + std::string(stem) +
      ".safetensors, or load it in transformers and call model.save_pretrained(DIR)");
}

/// The folder has no file of that stem: says what is there instead.
[[noreturn]] void refuse_folder(const fs::path& dir, std::string_view stem) {
  std::vector<fs::path> pickles, others;
  std::error_code error;
  for (fs::directory_iterator at(dir, error), end; !error && at != end; at.increment(error)) {
    if (is_pickle(at->path())) pickles.push_back(at->path());
    if (at->path().extension() == ".safetensors") others.push_back(at->path().filename());
  }
  if (error) throw IoError("[checkpoint] cannot list " + quote_path(dir) + ": " + error.message());
  if (others.empty() && !pickles.empty()) {
    // training_args.bin and optimizer.pt lie beside weights; name the weights if they are there.
    std::sort(pickles.begin(), pickles.end());
    const auto weights = std::find_if(pickles.begin(), pickles.end(), [&](const fs::path& path) {
      return path.filename().native().find(stem) != std::string::npos;
    });
    refuse_pickle(weights != pickles.end() ? *weights : pickles.front(), stem);
  }
  std::sort(others.begin(), others.end());
  const std::string name(stem);
  throw FormatError(
      "[checkpoint] " + quote_path(dir) + " has neither " + name + ".safetensors nor " + name +
      ".safetensors.index.json" +
      (others.empty() ? "" : "; it has " + quote_path(others.front()) + ", give the path of that file"));
}

/// The index's "weight_map": which shard holds which tensor.
std::map<std::string, std::string> read_weight_map(const fs::path& path) {
  const auto fail = [&](const std::string& what) {
    throw FormatError("[checkpoint] the index " + quote_path(path) + ": " + what);
  };
  const auto index = io::read_json_file(path);
  if (!index.is_object()) fail("must be a JSON object");
  const auto found = index.find("weight_map");
  if (found == index.end() || !found->is_object() || found->empty()) {
    fail("must have a weight_map, an object from tensor name to file name");
  }
  std::map<std::string, std::string> map;
  for (const auto& [name, value] : found->items()) {
    if (!value.is_string()) fail("the weight_map gives no file name for " + quote(name));
    const auto& file = value.get_ref<const std::string&>();
    if (!io::stays_inside(file)) {
      fail("the weight_map sends " + quote(name) + " to " + quote(file) +
           ", which is not a file beside the index or in a folder below it");
    }
    if (is_pickle(file)) refuse_pickle(path.parent_path() / file, "model");
    map.emplace(name, file);
  }
  return map;
}

}  // namespace

Checkpoint Checkpoint::open(const fs::path& path, std::string_view stem) {
  io::check_stem(stem);
  std::error_code ignored;  // what cannot be looked at is reported by the attempt to open it
  fs::path file = path;
  if (fs::is_directory(path, ignored)) {
    file = path / io::single_name(stem);
    if (!fs::exists(file, ignored)) file = path / io::index_name(stem);
    if (!fs::exists(file, ignored)) refuse_folder(path, stem);
  } else if (is_pickle(path)) {
    refuse_pickle(path, path.stem().native());
  }
  Checkpoint checkpoint;
  checkpoint.path_ = path;
  if (!file.native().ends_with(".index.json")) {
    checkpoint.add(SafetensorsFile::open(file));
    return checkpoint;
  }

  const auto map = read_weight_map(file);
  const auto fail = [&](const std::string& what) {
    throw FormatError("[checkpoint] the index " + quote_path(file) + " does not fit its shards: " + what);
  };
  std::map<std::string, size_t> shards;  // in order of their names
  for (const auto& [name, shard] : map) shards.emplace(shard, 0);
  for (auto& [shard, number] : shards) {
    const fs::path shard_path = file.parent_path() / shard;
    if (!fs::exists(shard_path, ignored)) fail("the shard " + quote(shard) + " is missing; fetch it");
    number = checkpoint.files_.size();
    checkpoint.add(SafetensorsFile::open(shard_path));
  }
  for (const auto& [name, shard] : map) {
    if (!checkpoint.files_[shards.at(shard)]->contains(name)) {
      fail("the tensor " + quote(name) + " is not in " + quote(shard) + ", where the index has it");
    }
  }
  for (const auto& name : checkpoint.names_) {
    if (!map.contains(name)) {
      fail("the tensor " + quote(name) + " in " + quote_path(checkpoint.file_of(name).path().filename()) +
           " is not in the index");
    }
  }
  return checkpoint;
}

void Checkpoint::add(std::shared_ptr<const SafetensorsFile> file) {
  for (const auto& name : file->names()) {
    const auto [slot, fresh] = where_.emplace(name, files_.size());
    if (!fresh) {
      throw FormatError("[checkpoint] " + quote_path(path_) + ": the tensor " + quote(name) +
                        " is in two shards, " + quote_path(files_[slot->second]->path().filename()) +
                        " and " + quote_path(file->path().filename()));
    }
    names_.push_back(name);
    total_bytes_ += file->info(name).bytes;
  }
  files_.push_back(std::move(file));
}

const SafetensorsFile& Checkpoint::file_of(std::string_view name) const {
  const auto found = where_.find(name);
  if (found == where_.end()) {
    throw FormatError("[checkpoint] " + quote_path(path_) + ": there is no tensor " + quote(name));
  }
  return *files_[found->second];
}

std::vector<fs::path> Checkpoint::files() const {
  std::vector<fs::path> paths;
  paths.reserve(files_.size());
  for (const auto& file : files_) paths.push_back(file->path());
  return paths;
}

}  // namespace graft
