#include "io/tokenizer_registry.h"

#include "graft/error.h"
#include "io/bert_text.h"
#include "io/format/quote.h"
#include "io/format/template_processor.h"
#include "io/format/tokenizer_fields.h"
#include "io/format/wordpiece.h"

namespace graft::io {
using nlohmann::json;

namespace {

template <class Part>
struct Kind {
  std::string_view type;
  std::unique_ptr<Part> (*make)(Fields&);
};

std::unique_ptr<Normalizer> bert_normalizer(Fields& fields) {
  BertNormalizerOptions options = {.clean_text = fields.boolean("clean_text"),
                                   .handle_chinese_chars = fields.boolean("handle_chinese_chars"),
                                   .lowercase = fields.boolean("lowercase")};
  if (fields.find("strip_accents")) options.strip_accents = fields.boolean("strip_accents");
  return make_bert_normalizer(options);
}

// All there is. A new kind is a line here.
const Kind<Normalizer> normalizers[] = {{"BertNormalizer", bert_normalizer}};
const Kind<PreTokenizer> pre_tokenizers[] = {
    {"BertPreTokenizer", [](Fields&) { return make_bert_pre_tokenizer(); }}};
const Kind<TokenModel> token_models[] = {{"WordPiece", [](Fields& fields) -> std::unique_ptr<TokenModel> {
                                            return WordPieceModel::from_fields(fields);
                                          }}};
const Kind<PostProcessor> post_processors[] = {
    {"TemplateProcessing",
     [](Fields& fields) -> std::unique_ptr<PostProcessor> {
       return TemplateProcessor::from_template_fields(fields);
     }},
    {"BertProcessing", [](Fields& fields) -> std::unique_ptr<PostProcessor> {
       return TemplateProcessor::from_bert_fields(fields);
     }}};
const Kind<Decoder> decoders[] = {{"WordPiece", [](Fields& fields) -> std::unique_ptr<Decoder> {
                                     return WordPieceDecoder::from_fields(fields);
                                   }}};

template <class Part, size_t N>
std::unique_ptr<const Part> make(Fields& fields, const std::string& type, const Kind<Part> (&known)[N]) {
  std::string names;
  for (const Kind<Part>& kind : known) {
    if (kind.type == type) {
      fields.find("type");
      auto part = kind.make(fields);
      fields.finish();
      return part;
    }
    names += (names.empty() ? "" : ", ") + std::string(kind.type);
  }
  fields.fail("is of the type " + quote(type) + "; known are: " + names);
}

template <class Part, size_t N>
std::unique_ptr<const Part> make_optional(const json* value, const std::string& label,
                                          const Kind<Part> (&known)[N]) {
  if (!value) return nullptr;
  Fields fields(*value, label);
  return make(fields, fields.string("type"), known);
}

}  // namespace

std::unique_ptr<const Normalizer> make_normalizer(const json* value, const std::string& file) {
  return make_optional(value, file + ", normalizer", normalizers);
}

std::unique_ptr<const PreTokenizer> make_pre_tokenizer(const json* value, const std::string& file) {
  return make_optional(value, file + ", pre_tokenizer", pre_tokenizers);
}

std::unique_ptr<const PostProcessor> make_post_processor(const json* value, const std::string& file) {
  return make_optional(value, file + ", post_processor", post_processors);
}

std::unique_ptr<const Decoder> make_decoder(const json* value, const std::string& file) {
  return make_optional(value, file + ", decoder", decoders);
}

std::unique_ptr<const TokenModel> make_token_model(const json* value, const std::string& file) {
  if (!value) throw ConfigError("[tokenizer] " + file + " has no model");
  Fields fields(*value, file + ", model");
  // Files of before 2021 (bert-base-uncased's is one) do not say the type; only WordPiece has this field.
  const bool untyped_wordpiece = !fields.find("type") && fields.find("max_input_chars_per_word");
  return make(fields, untyped_wordpiece ? "WordPiece" : fields.string("type"), token_models);
}

}  // namespace graft::io
