// Puts special tokens around the text and its pair, and gives both their type ids: `[CLS] $A [SEP] $B:1
// [SEP]:1`.
//
// One class does the work of tokenizer.json's TemplateProcessing, of BertProcessing (a fixed template) and of
// no post-processor at all
// (`$A`, and `$A $B:1`).
#pragma once
#include <memory>
#include <vector>

#include "io/tokenizer/parts.h"

namespace graft::io {
class Fields;

class TemplateProcessor final : public PostProcessor {
 public:
  enum class Kind { text, pair, special };
  struct Piece {
    Kind kind;
    int64_t type_id = 0;
    std::vector<int64_t> ids = {};  ///< of a special piece
  };
  using Template = std::vector<Piece>;

  /// REQUIRES: `single` has no Kind::pair.
  TemplateProcessor(Template single, Template pair) : single_(std::move(single)), pair_(std::move(pair)) {}
  static TemplateProcessor bert(int64_t cls, int64_t sep);
  static TemplateProcessor plain();
  // From tokenizer.json's `post_processor`.
  static std::unique_ptr<TemplateProcessor> from_template_fields(Fields& fields);
  static std::unique_ptr<TemplateProcessor> from_bert_fields(Fields& fields);
  static std::unique_ptr<TemplateProcessor> from_roberta_fields(Fields& fields);

  int64_t added_tokens(bool pair) const override;
  Tokenizer::Encoding process(const std::vector<int64_t>& text, const std::vector<int64_t>* pair,
                              bool add_special_tokens) const override;

 private:
  Template single_, pair_;
};

}  // namespace graft::io
