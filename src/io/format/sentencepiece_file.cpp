#include "io/format/sentencepiece_file.h"

#include <cmath>
#include <unordered_set>

#include "graft/error.h"
#include "io/format/protobuf.h"
#include "io/format/quote.h"

namespace graft::io {
namespace {

constexpr size_t kLongestPiece = 4096;  // SentencePiece makes none of more than 16 characters by itself

SentencePiece read_piece(std::string_view bytes, const std::string& label) {
  SentencePiece piece;
  for (ProtoReader in(bytes, label); in.next();) {
    if (in.field() == 1) piece.text = in.text();
    if (in.field() == 2) {
      piece.score = in.number();
      if (!std::isfinite(piece.score)) in.fail("a score is not finite");
    }
    if (in.field() == 3) {
      const uint64_t kind = in.varint();
      if (kind < 1 || kind > 6) in.fail("a piece is of the unknown kind " + std::to_string(kind));
      piece.kind = static_cast<SentencePiece::Kind>(kind);
    }
  }
  return piece;
}

class FileReader {
 public:
  explicit FileReader(const std::string& label) : label_(label) {}

  SentencePieceFile read(std::string_view bytes) {
    for (ProtoReader in(bytes, label_); in.next();) {
      if (in.field() == 1) file_.pieces.push_back(read_piece(in.bytes(), label_));
      if (in.field() == 2) read_trainer(in.bytes());
      if (in.field() == 3) read_normalizer(in.bytes());
    }
    check();
    return std::move(file_);
  }

 private:
  [[noreturn]] void refuse(const std::string& what) const {
    throw ConfigError("[sentencepiece] " + label_ + " " + what);
  }

  void read_trainer(std::string_view bytes) {
    for (ProtoReader in(bytes, label_); in.next();) {
      if (in.field() == 3) {
        const uint64_t kind = in.varint();
        if (kind != 1 && kind != 2)
          refuse("has a model of type " + std::to_string(kind) + "; known are 1 (unigram) and 2 (BPE)");
        file_.model = static_cast<SentencePieceFile::Model>(kind);
      }
      if (in.field() == 24 && in.boolean()) refuse("sets treat_whitespace_as_suffix, which is not supported");
      if (in.field() == 35) file_.byte_fallback = in.boolean();
    }
  }

  void read_normalizer(std::string_view bytes) {
    for (ProtoReader in(bytes, label_); in.next();) {
      if (in.field() == 2) file_.charsmap = in.bytes();
      if (in.field() == 3) file_.add_dummy_prefix = in.boolean();
      if (in.field() == 4) file_.remove_extra_whitespaces = in.boolean();
      if (in.field() == 5 && !in.boolean())
        refuse("sets escape_whitespaces to false, which is not supported");
    }
  }

  void check() {
    bool has_unknown = false;
    std::unordered_set<std::string_view> seen;
    for (size_t id = 0; id < file_.pieces.size(); ++id) {
      const auto& piece = file_.pieces[id];
      if (piece.text.empty()) refuse("has an empty piece, with the id " + std::to_string(id));
      if (piece.text.size() > kLongestPiece)
        refuse("has a piece of " + std::to_string(piece.text.size()) + " bytes, with the id " +
               std::to_string(id));
      if (!seen.insert(piece.text).second) refuse("has the piece " + quote(piece.text) + " twice");
      if (piece.kind != SentencePiece::Kind::unknown) continue;
      if (has_unknown) refuse("has two unknown tokens");
      has_unknown = true;
      file_.unknown = static_cast<int64_t>(id);
    }
    if (!has_unknown) refuse("has no unknown token");
  }

  const std::string& label_;
  SentencePieceFile file_;
};

}  // namespace

SentencePieceFile parse_sentencepiece(std::string_view bytes, const std::string& label) {
  return FileReader(label).read(bytes);
}

}  // namespace graft::io
