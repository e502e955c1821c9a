#include "io/tokenizer/metaspace.h"

#include "io/format/quote.h"
#include "io/tokenizer/fields.h"
#include "io/tokenizer/word_split.h"

namespace graft::io {
namespace {

/// Which words get a "▁" in front that they do not have: all, that at the start of the text, none.
enum class Prepend { always, first, never };

struct Options {
  char32_t replacement;
  Prepend prepend;
  bool split;
};

Options read_options(Fields& fields) {
  Options options{.replacement = read_character(fields, "replacement")};
  // Files of before 2024 say add_prefix_space.
  const bool prefixed = fields.boolean("add_prefix_space", true);
  const std::string scheme = fields.string("prepend_scheme", prefixed ? "always" : "never");
  if (scheme == "always")
    options.prepend = Prepend::always;
  else if (scheme == "first")
    options.prepend = Prepend::first;
  else if (scheme == "never")
    options.prepend = Prepend::never;
  else
    fields.fail("has the prepend_scheme " + quote(scheme) + "; known are always, first, never");
  if (!prefixed && options.prepend != Prepend::never)
    fields.fail("has an add_prefix_space and a prepend_scheme that contradict each other");
  options.split = fields.boolean("split", true);
  fields.ignore({"str_rep"});
  return options;
}

class MetaspacePreTokenizer final : public PreTokenizer {
 public:
  explicit MetaspacePreTokenizer(const Options& options) : options_(options) {
    append_utf8(mark_, options.replacement);
  }

  void split(const Word& word, std::vector<Word>& words) const override {
    Word marked{"", word.first};
    for (const char c : word.text) {
      if (c == ' ')
        marked.text += mark_;
      else
        marked.text += c;
    }
    const bool prepends =
        options_.prepend == Prepend::always || (options_.prepend == Prepend::first && word.first);
    if (prepends && !marked.text.starts_with(mark_)) marked.text.insert(0, mark_);
    if (!options_.split) return words.push_back(std::move(marked));
    const auto is_mark = [this](char32_t c) { return c == options_.replacement; };
    split_word(marked, matching_characters(marked.text, is_mark), Behavior::merged_with_next, words);
  }

 private:
  Options options_;
  std::string mark_;
};

class MetaspaceDecoder final : public Decoder {
 public:
  explicit MetaspaceDecoder(const Options& options) : options_(options) {}

  void decode(std::vector<std::string>& tokens) const override {
    for (size_t i = 0; i < tokens.size(); ++i) {
      std::string text;
      for (size_t pos = 0; pos < tokens[i].size();) {
        const char32_t c = next_code_point(tokens[i], pos);
        if (c != options_.replacement)
          append_utf8(text, c);
        else if (i > 0 || options_.prepend == Prepend::never)
          text += ' ';
      }
      tokens[i] = std::move(text);
    }
  }

 private:
  Options options_;
};

}  // namespace

char32_t read_character(Fields& fields, std::string_view key) {
  const std::string text = fields.string(key);
  if (count_code_points(text) != 1)
    fields.fail("must have one character as " + quote(key) + ", not " + quote(text));
  size_t pos = 0;
  return next_code_point(text, pos);
}

std::unique_ptr<PreTokenizer> metaspace_pre_tokenizer(Fields& fields) {
  return std::make_unique<MetaspacePreTokenizer>(read_options(fields));
}

std::unique_ptr<Decoder> metaspace_decoder(Fields& fields) {
  return std::make_unique<MetaspaceDecoder>(read_options(fields));
}

}  // namespace graft::io
