#include "io/tokenizer/registry.h"

#include "graft/error.h"
#include "io/format/quote.h"
#include "io/tokenizer/bert_text.h"
#include "io/tokenizer/bpe.h"
#include "io/tokenizer/byte_level.h"
#include "io/tokenizer/decoders.h"
#include "io/tokenizer/fields.h"
#include "io/tokenizer/metaspace.h"
#include "io/tokenizer/template_processor.h"
#include "io/tokenizer/text_rules.h"
#include "io/tokenizer/unicode_text.h"
#include "io/tokenizer/unigram.h"
#include "io/tokenizer/wordpiece.h"

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

/// The parts of a Sequence, listed under `key`.
template <class Part>
std::vector<std::unique_ptr<const Part>> parts_of(Fields& fields, const char* key,
                                                  std::unique_ptr<const Part> (*make)(const json*,
                                                                                      const std::string&)) {
  const json& list = fields.at(key);
  if (!list.is_array()) fields.fail("must have a list as " + quote(key));
  std::vector<std::unique_ptr<const Part>> parts;
  for (const json& each : list) parts.push_back(make(&each, fields.label()));
  return parts;
}

/// A processor that somebody else made.
class OneProcessor final : public PostProcessor {
 public:
  explicit OneProcessor(std::unique_ptr<const PostProcessor> processor) : processor_(std::move(processor)) {}
  int64_t added_tokens(bool pair) const override { return processor_->added_tokens(pair); }
  Tokenizer::Encoding process(const std::vector<int64_t>& text, const std::vector<int64_t>* pair,
                              bool add_special_tokens) const override {
    return processor_->process(text, pair, add_special_tokens);
  }

 private:
  std::unique_ptr<const PostProcessor> processor_;
};

/// Of a Sequence only one may add tokens; the others (ByteLevel) change offsets, which nobody sees here.
std::unique_ptr<PostProcessor> processor_sequence(Fields& fields) {
  auto parts = parts_of(fields, "processors", make_post_processor);
  const json& list = fields.at("processors");
  size_t kept = parts.size();
  for (size_t i = 0; i < parts.size(); ++i) {
    if (list[i].at("type") == "ByteLevel") continue;
    if (kept < parts.size()) fields.fail("has several processors that add tokens, which is not supported");
    kept = i;
  }
  if (kept == parts.size()) return std::make_unique<TemplateProcessor>(TemplateProcessor::plain());
  return std::make_unique<OneProcessor>(std::move(parts[kept]));
}

template <class Class, class Part>
std::unique_ptr<Part> from_fields(Fields& fields) {
  return Class::from_fields(fields);
}
template <NormalForm form>
std::unique_ptr<Normalizer> normal_form_of(Fields&) {
  return make_normal_form(form);
}

// All there is. A new kind is a line here.
const Kind<Normalizer> normalizers[] = {
    {"Sequence",
     [](Fields& fields) -> std::unique_ptr<Normalizer> {
       return std::make_unique<NormalizerSequence>(parts_of(fields, "normalizers", make_normalizer));
     }},
    {"BertNormalizer", bert_normalizer},
    {"NFC", normal_form_of<NormalForm::nfc>},
    {"NFD", normal_form_of<NormalForm::nfd>},
    {"NFKC", normal_form_of<NormalForm::nfkc>},
    {"NFKD", normal_form_of<NormalForm::nfkd>},
    {"Lowercase", [](Fields&) { return make_lowercase(); }},
    {"StripAccents", [](Fields&) { return make_strip_accents(); }},
    {"Strip", strip_normalizer},
    {"Replace", replace_normalizer},
    {"Prepend", prepend_normalizer},
    {"Nmt", nmt_normalizer},
    {"ByteLevel", byte_level_normalizer}};
const Kind<PreTokenizer> pre_tokenizers[] = {
    {"Sequence",
     [](Fields& fields) -> std::unique_ptr<PreTokenizer> {
       return std::make_unique<PreTokenizerSequence>(parts_of(fields, "pretokenizers", make_pre_tokenizer));
     }},
    {"BertPreTokenizer", [](Fields&) { return make_bert_pre_tokenizer(); }},
    {"ByteLevel", byte_level_pre_tokenizer},
    {"Metaspace", metaspace_pre_tokenizer},
    {"Split", split_pre_tokenizer},
    {"Digits", [](Fields& fields) { return make_digits(fields.boolean("individual_digits")); }},
    {"Punctuation", [](Fields& fields) { return make_punctuation(read_behavior(fields, "Isolated")); }},
    {"Whitespace", [](Fields&) { return make_whitespace(); }},
    {"WhitespaceSplit", whitespace_split_pre_tokenizer},
    {"CharDelimiterSplit", char_delimiter_pre_tokenizer}};
const Kind<TokenModel> token_models[] = {{"BPE", from_fields<BpeModel, TokenModel>},
                                         {"Unigram", from_fields<UnigramModel, TokenModel>},
                                         {"WordPiece", from_fields<WordPieceModel, TokenModel>},
                                         {"WordLevel", from_fields<WordLevelModel, TokenModel>}};
const Kind<PostProcessor> post_processors[] = {
    {"Sequence", processor_sequence},
    {"TemplateProcessing",
     [](Fields& fields) -> std::unique_ptr<PostProcessor> {
       return TemplateProcessor::from_template_fields(fields);
     }},
    {"BertProcessing",
     [](Fields& fields) -> std::unique_ptr<PostProcessor> {
       return TemplateProcessor::from_bert_fields(fields);
     }},
    {"RobertaProcessing",
     [](Fields& fields) -> std::unique_ptr<PostProcessor> {
       return TemplateProcessor::from_roberta_fields(fields);
     }},
    {"ByteLevel", [](Fields& fields) -> std::unique_ptr<PostProcessor> {
       fields.ignore({"add_prefix_space", "trim_offsets", "use_regex"});
       return std::make_unique<TemplateProcessor>(TemplateProcessor::plain());
     }}};
const Kind<Decoder> decoders[] = {
    {"Sequence",
     [](Fields& fields) -> std::unique_ptr<Decoder> {
       return std::make_unique<DecoderSequence>(parts_of(fields, "decoders", make_decoder));
     }},
    {"ByteLevel", byte_level_decoder},
    {"Metaspace", metaspace_decoder},
    {"WordPiece", from_fields<WordPieceDecoder, Decoder>},
    {"BPEDecoder", bpe_decoder},
    {"ByteFallback", byte_fallback_decoder},
    {"Fuse", fuse_decoder},
    {"Strip", strip_decoder},
    {"Replace", replace_decoder}};

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
  // Files of before 2021 (bert-base-uncased's and gpt2's are such) do not say the type; each has its own
  // field.
  const char* guessed = fields.find("max_input_chars_per_word") ? "WordPiece"
                        : fields.find("merges")                 ? "BPE"
                                                                : nullptr;
  return make(fields, guessed && !fields.find("type") ? guessed : fields.string("type"), token_models);
}

}  // namespace graft::io
