// Generation: a prompt's token ids in, the prompt and what the model adds to it out.
//
//   auto model = graft::AutoModelForCausalLM::from_pretrained(dir);
//   auto config = graft::GenerationConfig::from_pretrained(dir);
//   config.max_new_tokens = 40;
//   auto sequences = graft::generate(*model, {.input_ids = ids, .attention_mask = mask}, config);
//
//   graft::Decoder fast(model);                     // the decode step compiled, over a static cache
//   sequences = fast.generate({.input_ids = ids}, config);
//
// Names and meanings are those of transformers' generate(): greedy decoding gives its tokens, sampling its
// probabilities.
#pragma once
#include <filesystem>
#include <functional>
#include <optional>
#include <vector>

#include "graft/compile.h"
#include "graft/model.h"
#include "graft/peft.h"

namespace graft {

/// How a prompt is gone on with; a field left alone has transformers' default.
struct GenerationConfig {
  std::optional<int64_t> max_new_tokens = {};  ///< goes before max_length; neither: 20
  std::optional<int64_t> max_length = {};      ///< the prompt included
  std::optional<int64_t> min_new_tokens = {};  ///< no end of sequence before so many; goes before min_length
  int64_t min_length = 0;                      ///< the prompt included

  std::vector<int64_t> eos_token_id = {};    ///< any of them ends a row; none: rows run to the full length
  std::optional<int64_t> pad_token_id = {};  ///< fills rows that have ended; none: 0
  /// What an encoder-decoder's decoder starts with; none: what config.json says.
  std::optional<int64_t> decoder_start_token_id = {};

  double repetition_penalty = 1;  ///< above 1: tokens that are there already become less likely
  int64_t no_repeat_ngram_size = 0;
  std::vector<int64_t> suppress_tokens = {};
  std::vector<int64_t> begin_suppress_tokens = {};  ///< as the first new token

  bool do_sample = false;  ///< draw the next token; else the likeliest is taken
  double temperature = 1;
  int64_t top_k = 50;  ///< 0: all
  double top_p = 1;
  std::optional<double> min_p = {};
  /// Of the draws; none: another one each time.
  std::optional<uint64_t> seed = {};

  /// DIR/generation_config.json, or where there is none what DIR/config.json says of generation. A field that
  /// asks for what is not implemented (beam search, say) is a ConfigError that names it.
  static GenerationConfig from_pretrained(const std::filesystem::path& dir);

  /// UsageError for values that make no sense.
  void check() const;
};

/// What one call of generation may say beside its prompt.
struct GenerateCall {
  /// One adapter per row of the batch; "__base__" is none. Empty: the active adapters for all rows.
  std::vector<std::string> adapter_names = {};
  /// Called with the new token of each row as soon as it is known (the pad token in rows that have ended).
  /// False stops generation there.
  std::function<bool(const std::vector<int64_t>& tokens)> on_tokens = {};
};

/// `prompt` has input_ids [batch, seq] and may have an attention_mask of the same shape, with padding on the
/// left; without one, pad tokens are padding where transformers would say so. Gives [batch, seq + new],
/// int64; it is shorter than asked for where every row has ended. For an encoder-decoder the prompt is what
/// the encoder reads, padding on either side, and the result what the decoder wrote, its start token first.
at::Tensor generate(PreTrainedModel& model, const ModelInputs& prompt, const GenerationConfig& config,
                    const GenerateCall& call = {});
at::Tensor generate(PeftModel& model, const ModelInputs& prompt, const GenerationConfig& config,
                    const GenerateCall& call = {});

/// Generation with a compiled decode step: one program serves all steps, and later prompts too as long as the
/// batch stays the same and they fit the cache that is there. The prompt itself is run eagerly. Not for
/// encoder-decoders, whose cache is no static one yet.
/// One call at a time.
class Decoder {
 public:
  explicit Decoder(std::shared_ptr<PreTrainedModel> model, const CompileOptions& options = {});
  /// Which adapters serve which rows is data of the program, as in compile(peft).
  explicit Decoder(std::shared_ptr<PeftModel> model, const CompileOptions& options = {});
  ~Decoder();
  Decoder(Decoder&&) noexcept;
  Decoder& operator=(Decoder&&) noexcept;

  at::Tensor generate(const ModelInputs& prompt, const GenerationConfig& config,
                      const GenerateCall& call = {});

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace graft
