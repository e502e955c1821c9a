#include "io/checkpoint_names.h"

#include <algorithm>
#include <cstdio>

#include "graft/error.h"
#include "io/format/quote.h"

namespace graft::io {
namespace {

constexpr std::string_view kExtension = ".safetensors";

bool is_number(std::string_view text) {
  return text.size() >= 5 &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

}  // namespace

std::string single_name(std::string_view stem) { return std::string(stem).append(kExtension); }

std::string index_name(std::string_view stem) { return single_name(stem) + ".index.json"; }

std::string shard_name(std::string_view stem, size_t number, size_t count) {
  char suffix[64];
  std::snprintf(suffix, sizeof suffix, "-%05zu-of-%05zu", number, count);
  return std::string(stem) + suffix + std::string(kExtension);
}

bool is_shard_name(std::string_view name, std::string_view stem) {
  if (!name.starts_with(stem) || !name.ends_with(kExtension)) return false;
  name.remove_prefix(stem.size());
  if (name.size() <= kExtension.size() || name.front() != '-') return false;
  name.remove_prefix(1);
  name.remove_suffix(kExtension.size());
  const auto of = name.find("-of-");
  return of != name.npos && is_number(name.substr(0, of)) && is_number(name.substr(of + 4));
}

bool is_plain_file_name(std::string_view name) {
  using namespace std::string_view_literals;
  return !name.empty() && name != "." && name != ".." && name.find_first_of("/\\\0"sv) == name.npos;
}

bool stays_inside(std::string_view path) {
  for (auto slash = path.find('/'); slash != path.npos; slash = path.find('/')) {
    if (!is_plain_file_name(path.substr(0, slash))) return false;
    path.remove_prefix(slash + 1);
  }
  return is_plain_file_name(path);
}

void check_stem(std::string_view stem) {
  if (!is_plain_file_name(stem)) {
    throw UsageError("[checkpoint] the stem " + quote(stem) +
                     " is not a plain file name; give one like \"model\"");
  }
}

}  // namespace graft::io
