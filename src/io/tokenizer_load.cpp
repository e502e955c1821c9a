// Reads a tokenizer from its files: tokenizer.json, a GGUF file or a BERT vocab.txt turned into one, or
// SentencePiece's tokenizer.model.
#include "graft/error.h"
#include "io/format/hub_cache.h"
#include "io/format/json.h"
#include "io/format/mapped_file.h"
#include "io/format/quote.h"
#include "io/gguf.h"
#include "io/tokenizer/bert_vocab.h"
#include "io/tokenizer/document.h"
#include "io/tokenizer/gguf_tokenizer.h"

namespace graft::io {
using nlohmann::json;
namespace fs = std::filesystem;

namespace {

std::string_view as_text(const MappedFile& file) {
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

TokenizerPipeline load_gguf_tokenizer(const fs::path& path) {
  const auto file = GgufFile::open(path);
  const json document = gguf_tokenizer_document(file->header(), file->label());
  TokenizerPipeline parts = build_tokenizer(document, path.string());
  json config = json::object();
  if (const auto* pad = gguf_special_token(file->header(), "padding", file->label()))
    config["pad_token"] = *pad;
  apply_tokenizer_config(document, config, path.string(), parts);
  return parts;
}

}  // namespace

TokenizerPipeline load_tokenizer(const fs::path& given) {
  const auto folder_or_file = local_path(given);
  const bool is_folder = fs::is_directory(folder_or_file);
  if (!is_folder || !fs::exists(folder_or_file / "tokenizer.json"))
    if (const auto gguf = gguf_file_at(folder_or_file)) return load_gguf_tokenizer(*gguf);
  const fs::path file = is_folder ? folder_or_file / "tokenizer.json" : folder_or_file;
  const fs::path config_file = folder_or_file / "tokenizer_config.json",
                 vocab_file = folder_or_file / "vocab.txt";
  const json config = is_folder && fs::exists(config_file) ? read_json_file(config_file) : json::object();
  const fs::path pieces_file = is_folder ? folder_or_file / "tokenizer.model" : folder_or_file;
  if (is_folder ? !fs::exists(file) && fs::exists(pieces_file)
                : fs::exists(file) && folder_or_file.extension() == ".model")
    return build_sentencepiece(as_text(MappedFile(pieces_file)), pieces_file.string(),
                               is_folder && fs::exists(config_file) ? &config : nullptr,
                               config_file.string());
  json document;
  if (fs::exists(file))
    document = read_json_file(file);
  else if (is_folder && fs::exists(vocab_file))
    document = bert_tokenizer_document(as_text(MappedFile(vocab_file)), config, config_file.string());
  else
    throw IoError(
        "[tokenizer] " + quote_path(folder_or_file) +
        (is_folder ? " has neither tokenizer.json, tokenizer.model nor vocab.txt" : " does not exist"));
  TokenizerPipeline parts = build_tokenizer(document, fs::exists(file) ? file.string() : vocab_file.string());
  apply_tokenizer_config(document, config, config_file.string(), parts);
  return parts;
}

}  // namespace graft::io
