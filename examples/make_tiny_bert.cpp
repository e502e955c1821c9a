// Makes a BERT of a few thousand random weights with a letter-by-letter WordPiece vocabulary, and saves it as
// a checkpoint folder.
//   make_tiny_bert OUT_DIR
#include <torch/types.h>
#include <torch/utils.h>

#include <cstdio>
#include <fstream>

#include "graft/graft.h"

namespace {

constexpr auto kConfig = R"({
  "architectures": ["BertModel"], "model_type": "bert", "vocab_size": 80, "hidden_size": 48, "num_hidden_layers": 2,
  "num_attention_heads": 4, "intermediate_size": 96, "max_position_embeddings": 128, "type_vocab_size": 2, "pad_token_id": 0
})";

void write_vocabulary(const std::filesystem::path& path) {
  std::ofstream out(path);
  out << "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n";
  for (char c = 'a'; c <= 'z'; ++c) out << c << "\n##" << c << "\n";
  for (char c = '0'; c <= '9'; ++c) out << c << "\n##" << c << "\n";
  out << ".\n,\n?\n";
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 2) return std::fprintf(stderr, "usage: make_tiny_bert OUT_DIR\n"), 2;
  torch::manual_seed(0);
  const auto model = graft::AutoModelForAny::from_config(graft::Config::from_json(kConfig));
  model->save_pretrained(argv[1]);
  write_vocabulary(std::filesystem::path(argv[1]) / "vocab.txt");
  std::printf("a tiny %s is in %s\n", model->architecture().c_str(), argv[1]);
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "make_tiny_bert: %s\n", error.what());
  return 1;
}
