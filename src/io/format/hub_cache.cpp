#include "io/format/hub_cache.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <vector>

#include "graft/error.h"
#include "io/format/quote.h"

namespace graft::io {
namespace fs = std::filesystem;

namespace {

constexpr std::string_view kEntry = "models--", kBetween = "--";

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

fs::path with_home(const std::string& path) {
  return path == "~" || path.starts_with("~/") ? fs::path(variable("HOME") + path.substr(1)) : fs::path(path);
}

/// By huggingface_hub's variables and their order.
fs::path cache_folder() {
  for (const char* name : {"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"})
    if (const auto given = variable(name); !given.empty()) return with_home(given);
  if (const auto home = variable("HF_HOME"); !home.empty()) return with_home(home) / "hub";
  const auto cache = variable("XDG_CACHE_HOME");
  return with_home(cache.empty() ? "~/.cache" : cache) / "huggingface" / "hub";
}

/// "name" or "org/name", of the letters that the hub allows.
bool may_be_id(const std::string& text) {
  constexpr size_t most = 96;
  if (text.empty() || text.size() > most || std::count(text.begin(), text.end(), '/') > 1) return false;
  const auto allowed = [](unsigned char c) {
    return std::isalnum(c) || c == '-' || c == '_' || c == '.' || c == '/';
  };
  const auto at_the_edge = [](char c) { return c == '-' || c == '.' || c == '/'; };
  // A file that is not there, more likely than a model of that name.
  for (const char* ending : {".gguf", ".safetensors", ".json"})
    if (text.ends_with(ending)) return false;
  return std::all_of(text.begin(), text.end(), allowed) && !at_the_edge(text.front()) &&
         !at_the_edge(text.back()) && text.find("--") == text.npos && text.find("..") == text.npos;
}

std::string entry_of(const std::string& id) {
  std::string name(kEntry);
  for (const char c : id) name += c == '/' ? std::string(kBetween) : std::string(1, c);
  return name;
}

bool is_entry(const fs::path& folder) {
  std::error_code error;
  return fs::is_directory(folder / "snapshots", error) && !fs::exists(folder / "config.json", error) &&
         !fs::exists(folder / "adapter_config.json", error);
}

/// The snapshot that refs/main names; without that file the only one there is.
fs::path snapshot_of(const fs::path& entry) {
  std::error_code error;
  std::string commit;
  std::ifstream(entry / "refs" / "main") >> commit;
  if (!commit.empty()) {
    const bool is_name = commit.find('/') == commit.npos && commit != "." && commit != "..";
    if (const auto found = entry / "snapshots" / commit; is_name && fs::is_directory(found, error))
      return found;
    throw IoError("[hub] refs/main of " + quote_path(entry) + " names the snapshot " + commit +
                  ", which is not there: fetch the model again, or give the path of a snapshot");
  }
  std::vector<fs::path> all;
  for (fs::directory_iterator at(entry / "snapshots", error), end; !error && at != end; at.increment(error))
    all.push_back(at->path());
  if (all.size() == 1) return all[0];
  throw IoError("[hub] " + quote_path(entry) + " has no refs/main and " + std::to_string(all.size()) +
                " snapshots: give the path of one of them");
}

}  // namespace

fs::path local_path(const fs::path& given) {
  std::error_code error;
  if (fs::exists(given, error)) return is_entry(given) ? snapshot_of(given) : given;
  const auto& id = given.native();
  if (!may_be_id(id)) return given;
  const auto entry = cache_folder() / entry_of(id);
  if (is_entry(entry)) return snapshot_of(entry);
  throw IoError("[hub] there is neither a folder " + quote_path(given) +
                " nor that model in the cache of the "
                "Hugging Face hub: looked for " +
                quote_path(entry) +
                " (HF_HUB_CACHE and HF_HOME say where the cache is). graft fetches nothing; `hf download " +
                id + "` does");
}

std::string model_name(const fs::path& given) {
  for (const auto& part : given)
    if (const auto name = part.native(); name.starts_with(kEntry))
      return name.substr(name.rfind(kBetween) + kBetween.size());
  const auto clean = given.lexically_normal();
  return (clean.has_filename() ? clean : clean.parent_path()).filename().string();
}

}  // namespace graft::io
