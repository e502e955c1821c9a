// How the files of a checkpoint are named, after transformers: STEM.safetensors, or
// STEM-00001-of-00003.safetensors beside STEM.safetensors.index.json.
#pragma once
#include <string>
#include <string_view>

namespace graft::io {

std::string single_name(std::string_view stem);
std::string index_name(std::string_view stem);
/// `number` counts from 1.
std::string shard_name(std::string_view stem, size_t number, size_t count);
/// Whether `name` is a shard of a checkpoint of that stem, with whatever numbers.
bool is_shard_name(std::string_view name, std::string_view stem);

/// Such names with "/" between them: the path of a file in the folder or below it.
bool stays_inside(std::string_view path);
/// A name that cannot lead out of its folder: no separator of any system, not "." or "..", no NUL.
bool is_plain_file_name(std::string_view name);
/// Throws UsageError for a stem that is no plain file name.
void check_stem(std::string_view stem);

}  // namespace graft::io
