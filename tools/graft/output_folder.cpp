#include "output_folder.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <vector>

#include "graft/error.h"
#include "io/checkpoint_names.h"
#include "io/format/atomic_file.h"
#include "io/format/io_error.h"
#include "support/remove_folder.h"

namespace graft::cli {
namespace fs = std::filesystem;

namespace {

constexpr const char* kUnfinished = ".unfinished";

void check(const std::error_code& error, const char* action, const fs::path& path) {
  if (error) io::throw_io_error(action, path, error.value());
}

void remove_file(const fs::path& path) {
  std::error_code error;
  fs::remove(path, error);
  check(error, "remove", path);
}

/// What goes first to its place: a reader looks at the config first, and finds none until all is there.
int rank(const fs::path& file) {
  const auto name = file.filename().native();
  return name == "config.json" || name == "adapter_config.json" ? 2 : name.ends_with(".json") ? 1 : 0;
}

/// The files in `from`, in the order in which they take their places.
std::vector<fs::path> files_in(const fs::path& from) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::recursive_directory_iterator(from))
    if (entry.is_regular_file()) files.push_back(fs::relative(entry.path(), from));
  std::sort(files.begin(), files.end());
  std::stable_sort(files.begin(), files.end(),
                   [](const auto& a, const auto& b) { return rank(a) < rank(b); });
  return files;
}

/// Of the checkpoint in `folder` whose place another takes: its config, and weights that the new one has not.
void remove_old_checkpoint(const fs::path& folder, const std::vector<fs::path>& coming) {
  for (const auto& [stem, config] :
       {std::pair("model", "config.json"), {"adapter_model", "adapter_config.json"}}) {
    const auto comes = [&](const fs::path& name) {
      return std::find(coming.begin(), coming.end(), name) != coming.end();
    };
    if (!comes(io::single_name(stem)) && !comes(io::index_name(stem))) continue;
    if (comes(config)) remove_file(folder / config);
    for (const auto& name : {io::single_name(stem), io::index_name(stem)})
      if (!comes(name)) remove_file(folder / name);
    std::vector<fs::path> shards;
    for (const auto& entry : fs::directory_iterator(folder))
      if (const auto name = entry.path().filename(); io::is_shard_name(name.native(), stem) && !comes(name))
        shards.push_back(entry.path());
    for (const auto& shard : shards) remove_file(shard);
  }
}

/// One path for one file, whether it exists or not.
fs::path place_of(const fs::path& path) {
  std::error_code error;
  auto place = fs::weakly_canonical(fs::absolute(path, error), error);
  return error ? path : place;
}

/// Whether a file of that name is part of a checkpoint, so that one who reads the folder reads the file.
bool is_of_checkpoint(const std::string& name) {
  static const std::set<std::string> configs = {
      "config.json",       "generation_config.json",  "adapter_config.json", "tokenizer.json",
      "tokenizer.model",   "tokenizer_config.json",   "vocab.json",          "vocab.txt",
      "merges.txt",        "special_tokens_map.json", "added_tokens.json",   "chat_template.jinja",
      "chat_template.json"};
  return configs.contains(name) ||
         std::ranges::any_of(std::array{"model", "adapter_model"}, [&](const char* stem) {
           return name == io::single_name(stem) || name == io::index_name(stem) ||
                  io::is_shard_name(name, stem);
         });
}

bool is_read_from(const fs::path& result, const fs::path& source) {
  return result == source || (result.parent_path() == source && is_of_checkpoint(result.filename()));
}

void put_in_place(const fs::path& from, const fs::path& to) {
  const auto files = files_in(from);
  std::error_code error;
  for (const auto& file : files) {
    fs::create_directories((to / file).parent_path(), error);
    check(error, "create", (to / file).parent_path());
    if (fs::is_directory(to / file, error)) io::throw_io_error("write", to / file, EISDIR);
  }
  for (const auto& file : files) {
    if (rank(file) < 2) continue;
    std::vector<fs::path> beside;
    for (const auto& other : files)
      if (other.parent_path() == file.parent_path()) beside.push_back(other.filename());
    remove_old_checkpoint((to / file).parent_path(), beside);
  }
  for (const auto& file : files) {
    fs::rename(from / file, to / file, error);
    check(error, "replace", to / file);
  }
}

}  // namespace

OutputFolder::OutputFolder(const fs::path& folder) : folder_(folder), lock_(io::FolderLock::take(folder)) {}

void OutputFolder::fill(const std::function<void(const fs::path&)>& write) const {
  const auto unfinished = folder_ / kUnfinished;
  std::error_code error;
  remove_folder(unfinished, error);  // of a run that was killed
  check(error, "remove", unfinished);
  try {
    fs::create_directories(unfinished, error);  // also where somebody removed the folder meanwhile
    check(error, "create", unfinished);
    write(unfinished);
    put_in_place(unfinished, folder_);
  } catch (...) {
    remove_folder(unfinished, error);
    throw;
  }
  remove_folder(unfinished, error);
}

void refuse_unwritable(const std::vector<GivenPath>& results, const std::vector<fs::path>& read) {
  std::map<fs::path, const char*> seen;
  for (const auto& [flag, path] : results) {
    if (path.empty()) continue;
    if (io::is_replaced_by_writing(path)) {
      const auto place = place_of(path);
      if (const auto [other, is_new] = seen.emplace(place, flag); !is_new)
        throw Error(std::string(other->second) + " and " + flag + " are one file, " + io::quote_path(path) +
                    ": the second would replace the first");
      for (const auto& source : read)
        if (!source.empty() && is_read_from(place, place_of(source)))
          throw Error(std::string(flag) + " " + io::quote_path(path) +
                      " is a file that is read: write to another one");
    }
    io::AtomicFile{path};
  }
}

}  // namespace graft::cli
