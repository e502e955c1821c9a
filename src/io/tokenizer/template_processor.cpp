#include "io/tokenizer/template_processor.h"

#include <algorithm>
#include <map>

#include "io/format/quote.h"
#include "io/tokenizer/fields.h"

namespace graft::io {
using nlohmann::json;

TemplateProcessor TemplateProcessor::bert(int64_t cls, int64_t sep) {
  const Template single = {{Kind::special, 0, {cls}}, {Kind::text, 0}, {Kind::special, 0, {sep}}};
  Template pair = single;
  pair.push_back({Kind::pair, 1});
  pair.push_back({Kind::special, 1, {sep}});
  return {single, pair};
}

TemplateProcessor TemplateProcessor::plain() {
  return {{{Kind::text, 0}}, {{Kind::text, 0}, {Kind::pair, 1}}};
}

namespace {

using SpecialTokens = std::map<std::string, std::vector<int64_t>>;

// {"[CLS]": {"id": "[CLS]", "ids": [101], "tokens": ["[CLS]"]}}; one special token may be several ids.
SpecialTokens read_special_tokens(const json& entries, const std::string& label) {
  Fields check_object(entries, label);
  SpecialTokens tokens;
  for (const auto& [name, entry] : entries.items()) {
    Fields token(entry, label + ", " + quote(name));
    if (token.string("id") != name) token.fail("has another \"id\" than its name");
    const json &ids = token.at("ids"), &texts = token.at("tokens");
    if (!ids.is_array() || !texts.is_array() || ids.size() != texts.size())
      token.fail("must have as many \"ids\" as \"tokens\"");
    auto& list = tokens[name];
    for (const json& id : ids) list.push_back(as_number(id, token.label() + ", ids"));
    token.finish();
  }
  return tokens;
}

// [{"SpecialToken": {"id": "[CLS]", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]
TemplateProcessor::Template read_template(const json& pieces, const std::string& label,
                                          const SpecialTokens& specials) {
  using Kind = TemplateProcessor::Kind;
  TemplateProcessor::Template out;
  for (const json& entry : pieces) {
    Fields outer(entry, label);
    const bool special = outer.find("SpecialToken") != nullptr;
    Fields piece(outer.at(special ? "SpecialToken" : "Sequence"), label);
    outer.finish();
    const std::string id = piece.string("id");
    const int64_t type_id = piece.number("type_id");
    piece.finish();
    if (special) {
      const auto it = specials.find(id);
      if (it == specials.end()) piece.fail("uses " + quote(id) + ", which is not among its special_tokens");
      out.push_back({Kind::special, type_id, it->second});
    } else if (id == "A" || id == "B") {
      out.push_back({id == "A" ? Kind::text : Kind::pair, type_id});
    } else {
      piece.fail("has the sequence " + quote(id) + "; there are only A and B");
    }
  }
  return out;
}

}  // namespace

std::unique_ptr<TemplateProcessor> TemplateProcessor::from_template_fields(Fields& fields) {
  const auto specials = read_special_tokens(fields.at("special_tokens"), fields.label() + ", special_tokens");
  const auto read = [&](const char* name) {
    const json& pieces = fields.at(name);
    if (!pieces.is_array()) fields.fail("has a \"" + std::string(name) + "\" that is not a list");
    return read_template(pieces, fields.label() + ", " + name, specials);
  };
  Template single = read("single"), pair = read("pair");
  const auto is_pair = [](const Piece& piece) { return piece.kind == Kind::pair; };
  if (std::any_of(single.begin(), single.end(), is_pair)) fields.fail("uses sequence B in \"single\"");
  return std::make_unique<TemplateProcessor>(std::move(single), std::move(pair));
}

namespace {
/// ["[SEP]", 102]
int64_t token_id(Fields& fields, const char* name) {
  const json& token = fields.at(name);
  if (!token.is_array() || token.size() != 2 || !token[0].is_string())
    fields.fail("must give \"" + std::string(name) + "\" as a token and its id");
  return as_number(token[1], fields.label() + ", " + name);
}
}  // namespace

std::unique_ptr<TemplateProcessor> TemplateProcessor::from_bert_fields(Fields& fields) {
  return std::make_unique<TemplateProcessor>(bert(token_id(fields, "cls"), token_id(fields, "sep")));
}

// <s> A </s>, and <s> A </s> </s> B </s>, all of type 0.
std::unique_ptr<TemplateProcessor> TemplateProcessor::from_roberta_fields(Fields& fields) {
  const Piece cls{Kind::special, 0, {token_id(fields, "cls")}},
      sep{Kind::special, 0, {token_id(fields, "sep")}};
  const Piece text{Kind::text, 0}, pair{Kind::pair, 0};
  fields.ignore({"trim_offsets", "add_prefix_space"});
  return std::make_unique<TemplateProcessor>(Template{cls, text, sep},
                                             Template{cls, text, sep, sep, pair, sep});
}

int64_t TemplateProcessor::added_tokens(bool pair) const {
  int64_t count = 0;
  for (const Piece& piece : pair ? pair_ : single_) count += static_cast<int64_t>(piece.ids.size());
  return count;
}

Tokenizer::Encoding TemplateProcessor::process(const std::vector<int64_t>& text,
                                               const std::vector<int64_t>* pair,
                                               bool add_special_tokens) const {
  Tokenizer::Encoding out;
  for (const Piece& piece : pair ? pair_ : single_) {
    if (piece.kind == Kind::special && !add_special_tokens) continue;
    const auto& ids = piece.kind == Kind::special ? piece.ids : piece.kind == Kind::pair ? *pair : text;
    out.ids.insert(out.ids.end(), ids.begin(), ids.end());
    out.type_ids.resize(out.ids.size(), piece.type_id);
  }
  out.attention_mask.assign(out.ids.size(), 1);
  return out;
}

}  // namespace graft::io
