// Sentence search with a BERT-like encoder: embeds a small library of sentences and shows which are nearest
// to a question.
//   nearest_sentences MODEL_DIR [QUESTION...]
#include <torch/types.h>
#include <torch/utils.h>

#include <chrono>
#include <cstdio>

#include "graft/graft.h"

namespace {

const std::vector<std::string> kLibrary{
    "The bakery on the corner sells fresh bread every morning.",
    "Knead the dough for ten minutes and let it rise overnight.",
    "A pinch of salt brings out the flavour of the tomatoes.",
    "The recipe asks for two eggs, flour and a cup of milk.",
    "Astronomers found water vapour in the air of a distant planet.",
    "The telescope takes pictures of galaxies as they were ten billion years ago.",
    "A comet will be visible to the naked eye next week.",
    "The rover sent back photographs of a dry riverbed on Mars.",
    "Our team lost the final after a penalty in the last minute.",
    "She ran the marathon in under three hours.",
    "The goalkeeper saved two penalties and became the hero of the match.",
    "He trains in the swimming pool five days a week.",
    "The central bank raised interest rates to slow inflation.",
    "Shares fell sharply after the company missed its profit forecast.",
    "Buying a house has become harder because loans cost more.",
    "The government plans to lower taxes on small businesses.",
    "Wash your hands often to avoid catching a cold.",
    "The doctor told him to rest until the fever was gone.",
    "A new vaccine protects children against malaria.",
    "Walking half an hour a day is good for the heart.",
    "The compiler fuses the loops and writes vector instructions.",
    "A race condition made the server crash once a week.",
    "Version control lets a team work on the same source code.",
    "The program reads the file in one go and counts the words.",
};

const std::vector<std::string> kQuestions{"How do I bake a loaf at home?", "Is there life on other worlds?",
                                          "Why did my mortgage get more expensive?",
                                          "How can I find a bug in my software?"};

/// One row per text: the mean of its tokens' last hidden states, of length one.
at::Tensor embed(graft::PreTrainedModel& model, const graft::Tokenizer& tokenizer,
                 const std::vector<std::string>& texts) {
  const auto encodings = tokenizer.encode_batch(texts, {.padding = true, .max_length = 128});
  const auto rows = static_cast<int64_t>(encodings.size()),
             length = static_cast<int64_t>(encodings[0].ids.size());
  auto ids = torch::empty({rows, length}, torch::kLong), mask = torch::empty({rows, length}, torch::kLong);
  for (int64_t i = 0; i < rows; ++i) {
    ids[i] = torch::tensor(encodings[i].ids);
    mask[i] = torch::tensor(encodings[i].attention_mask);
  }
  const auto hidden = model({.input_ids = ids, .attention_mask = mask}).last_hidden_state;
  const auto weight = mask.unsqueeze(-1).to(hidden.dtype());
  const auto mean = (hidden * weight).sum(1) / weight.sum(1);
  return mean / mean.norm(2, 1, /*keepdim=*/true);
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc < 2) return std::fprintf(stderr, "usage: nearest_sentences MODEL_DIR [QUESTION...]\n"), 2;
  torch::NoGradGuard no_grad;
  const auto model = graft::AutoModel::from_pretrained(argv[1]);
  const auto tokenizer = graft::Tokenizer::from_pretrained(argv[1]);

  const auto start = std::chrono::steady_clock::now();
  const auto library = embed(*model, *tokenizer, kLibrary);
  const std::chrono::duration<double, std::milli> taken = std::chrono::steady_clock::now() - start;
  std::printf("%zu sentences embedded in %.0f ms, %ld numbers each\n", kLibrary.size(), taken.count(),
              static_cast<long>(library.size(1)));

  const auto questions = argc > 2 ? std::vector<std::string>(argv + 2, argv + argc) : kQuestions;
  const auto similarity = torch::mm(embed(*model, *tokenizer, questions), library.t());
  const auto [scores, indices] = similarity.topk(3);
  for (size_t i = 0; i < questions.size(); ++i) {
    std::printf("\n  %s\n", questions[i].c_str());
    for (int64_t k = 0; k < 3; ++k) {
      const auto row = static_cast<int64_t>(i);
      std::printf("    %5.2f  %s\n", scores[row][k].item<double>(),
                  kLibrary[indices[row][k].item<int64_t>()].c_str());
    }
  }
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "nearest_sentences: %s\n", error.what());
  return 1;
}
