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
//   graft::BatchGenerator server(model, {.rows = 8}); // requests join and leave a running batch
//   server.submit({.input_ids = tokens, .config = config, .on_token = print});
//   while (server.step()) {}
//
// Names and meanings are those of transformers' generate(): greedy decoding gives its tokens, sampling its
// probabilities.
#pragma once
#include <exception>
#include <filesystem>
#include <functional>
#include <optional>
#include <vector>

#include "graft/compile.h"
#include "graft/model.h"
#include "graft/peft.h"
#include "graft/tokenizer.h"

namespace graft {

/// When beam search ends: as soon as num_beams sequences have ended (yes), when no running beam is likely to
/// become better than those (no), or only when none can (never).
enum class EarlyStopping : uint8_t { no, yes, never };

/// Tokens, and what is added to the score of the last of them where the others stand before it.
struct TokenBias {
  std::vector<int64_t> ids;
  double bias;
};

/// After `start` new tokens the end becomes likelier with each token, by a power of `factor`.
struct LengthDecay {
  int64_t start;
  double factor;
};

/// How a prompt is continued; a field left alone has transformers' default. docs/generation.md lists them
/// all.
struct GenerationConfig {
  std::optional<int64_t> max_new_tokens = {};  ///< goes before max_length; neither: 20
  std::optional<int64_t> max_length = {};      ///< the prompt included
  std::optional<int64_t> min_new_tokens = {};  ///< no end of sequence before so many; goes before min_length
  int64_t min_length = 0;                      ///< the prompt included
  std::optional<double> max_time = {};         ///< seconds after which no further token is begun

  std::vector<int64_t> eos_token_id = {};  ///< any of them ends a row; none: rows run to the full length
  /// Texts that end a row, too, and stay in it; GenerateCall::tokenizer reads them.
  std::vector<std::string> stop_strings = {};
  std::optional<int64_t> pad_token_id = {};  ///< fills rows that have ended; none: 0
  /// What an encoder-decoder's decoder starts with; none: what config.json says.
  std::optional<int64_t> decoder_start_token_id = {};

  int64_t num_beams = 1;      ///< above 1: beam search with so many
  double length_penalty = 1;  ///< scores of beams are divided by their length to this power
  EarlyStopping early_stopping = EarlyStopping::no;
  int64_t num_return_sequences = 1;  ///< of each prompt: so many draws, or so many of its beams

  std::vector<TokenBias> sequence_bias = {};
  double encoder_repetition_penalty = 1;     ///< above 1: tokens of the prompt become more likely
  double repetition_penalty = 1;             ///< above 1: tokens that are there already become less likely
  int64_t no_repeat_ngram_size = 0;          ///< above 0: no run of so many tokens comes twice
  int64_t encoder_no_repeat_ngram_size = 0;  ///< no such run of the prompt comes again
  std::vector<std::vector<int64_t>> bad_words_ids = {};  ///< runs of tokens that may not come
  std::optional<int64_t> forced_bos_token_id = {};       ///< after a single token (a decoder's start)
  std::vector<int64_t> forced_eos_token_id = {};         ///< one of them is the last at the full length
  bool remove_invalid_values = false;                    ///< NaN and infinities become numbers
  std::optional<LengthDecay> exponential_decay_length_penalty = {};
  std::vector<int64_t> suppress_tokens = {};
  std::vector<int64_t> begin_suppress_tokens = {};  ///< as the first new token
  bool renormalize_logits = false;                  ///< after all rules; it is beams that feel it

  bool do_sample = false;  ///< draw the next token; else the likeliest is taken
  double temperature = 1;
  std::optional<double> top_h = {};
  int64_t top_k = 50;  ///< 0: all
  double top_p = 1;
  std::optional<double> min_p = {};
  double typical_p = 1;
  double epsilon_cutoff = 0;
  double eta_cutoff = 0;
  /// Of the draws; none: another one each time. On the CPU it draws what transformers draws after
  /// torch.manual_seed with it.
  std::optional<uint64_t> seed = {};

  // Assisted decoding: tokens are guessed, and several checked in one call of the model. It changes no token.
  /// So many guesses at a time, taken from where the last tokens stood before; none: no guesses.
  std::optional<int64_t> prompt_lookup_num_tokens = {};
  int64_t max_matching_ngram_size = 2;          ///< of the tokens that are looked up
  int64_t num_assistant_tokens = 20;            ///< guesses at a time by GenerateCall's assistant_model
  double assistant_confidence_threshold = 0.4;  ///< it stops after a guess that it gives less probability
  /// With do_sample and an assistant_model: its guesses are drawn, and kept by chance so that the result has
  /// the model's own probabilities, as in transformers. More are kept; a seed gives other tokens than
  /// without.
  bool speculative_sampling = false;

  /// DIR/generation_config.json, or where there is none what DIR/config.json says of generation. A field that
  /// asks for what is not implemented (constrained beams, say) is a ConfigError that names it.
  static GenerationConfig from_pretrained(const std::filesystem::path& dir);

  /// UsageError for values that make no sense.
  void check() const;
};

/// What one call of generation may say beside its prompt.
struct GenerateCall {
  /// One adapter per row of the batch; "__base__" is none. Empty: the active adapters for all rows.
  std::vector<std::string> adapter_names = {};
  /// Called with the new token of each row as soon as it is known (the pad token in rows that have ended);
  /// with beams, of which no token is final before the end, with none. False stops generation there.
  std::function<bool(const std::vector<int64_t>& tokens)> on_tokens = {};
  /// A smaller model with the same vocabulary that goes ahead; the result stays what it is without. For one
  /// row.
  std::shared_ptr<PreTrainedModel> assistant_model = {};
  /// With guesses: called after each call of the model with how many there were and how many were right.
  std::function<void(int64_t guessed, int64_t right)> on_candidates = {};
  /// The model's, for stop_strings.
  std::shared_ptr<const Tokenizer> tokenizer = {};
};

/// What came of a call beside its tokens. With num_return_sequences or beams a prompt has several rows, one
/// after the other.
struct GenerateOutput {
  at::Tensor sequences;  ///< what generate() gives
  /// [rows, new tokens], float32: the logarithm of each token's probability by the scores it was chosen by
  /// (after penalties and the like); 0 for what fills rows that have ended. With beams: what the search added
  /// for it, which no rule has normalised since.
  at::Tensor logprobs;
  at::Tensor sequences_scores;  ///< with beams: [rows], their logprobs' sum over length to length_penalty
  /// With beams: [rows, new tokens], which beam of the batch a token was put to; -1 past a row's end.
  at::Tensor beam_indices;
};

/// `prompt` has input_ids [batch, seq] and may have an attention_mask of the same shape, with padding on the
/// left; without one, pad tokens are padding where transformers would say so. Gives [batch, seq + new],
/// int64; it is shorter than asked for where every row has ended. For an encoder-decoder the prompt is what
/// the encoder reads, padding on either side (without an attention_mask it reads all of it), and the result
/// what the decoder wrote, its start token first.
at::Tensor generate(PreTrainedModel& model, const ModelInputs& prompt, const GenerationConfig& config,
                    const GenerateCall& call = {});
at::Tensor generate(PeftModel& model, const ModelInputs& prompt, const GenerationConfig& config,
                    const GenerateCall& call = {});

/// The same, with what the tokens' probabilities were.
GenerateOutput generate_with_scores(PreTrainedModel& model, const ModelInputs& prompt,
                                    const GenerationConfig& config, const GenerateCall& call = {});
GenerateOutput generate_with_scores(PeftModel& model, const ModelInputs& prompt,
                                    const GenerationConfig& config, const GenerateCall& call = {});

/// Generation with a compiled decode step: one program serves all steps, and later prompts too as long as the
/// batch stays the same and they fit the cache that is there. A prompt is run eagerly, and compiled from the
/// second of about its length on; what an encoder reads is always run eagerly. One call at a time, also in
/// callbacks: another is a UsageError.
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
  GenerateOutput generate_with_scores(const ModelInputs& prompt, const GenerationConfig& config,
                                      const GenerateCall& call = {});

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Generation that goes on with a text, as a conversation does: what of a prompt was read before is not read
/// again. The rest is as with generate(), or a Decoder where there are options to compile by. What was read
/// depends on the adapters that worked then, and is kept for each choice of them: after a switch back only
/// what is new is read. With other weights (trained on, loaded, merged) or for another task all of it is read
/// again. One row, without padding, for models without an encoder. One call at a time, as with a Decoder.
class Session {
 public:
  explicit Session(std::shared_ptr<PreTrainedModel> model, const std::optional<CompileOptions>& compile = {});
  explicit Session(std::shared_ptr<PeftModel> model, const std::optional<CompileOptions>& compile = {});
  ~Session();
  Session(Session&&) noexcept;
  Session& operator=(Session&&) noexcept;

  at::Tensor generate(const ModelInputs& prompt, const GenerationConfig& config,
                      const GenerateCall& call = {});
  /// How many tokens of the last prompt had to be read.
  int64_t tokens_read() const;
  /// Frees what was read. On a GPU also for when weights were written past their version, which is not seen
  /// there.
  void forget();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Why a request of a BatchGenerator ended: with one of its eos_token_id or stop_strings, or at its full
/// length.
enum class Finish : uint8_t { stop, length };

/// A new token of a request.
struct BatchToken {
  int64_t id;  ///< the request's
  int64_t token;
  std::optional<Finish> finish;  ///< with the last one: why it is the last
};

/// A prompt and how it is continued, whatever else is in the batch.
struct BatchRequest {
  std::vector<int64_t> input_ids = {};
  /// How long, where to stop, how to draw. A seed draws what it draws for this prompt alone.
  GenerationConfig config = {};
  /// "__base__" is none. A prompt method serves whole batches only and is refused.
  std::string adapter_name = "__base__";
  /// Called in step() with each new token. False ends the request there.
  std::function<bool(const BatchToken&)> on_token = {};
  /// Called in step() when the request cannot be continued: its on_token threw, its adapter is gone. It
  /// has left the batch then. Without this step() throws the same, once the other rows are done.
  std::function<void(const std::exception_ptr&)> on_error = {};
  /// The model's, for stop_strings.
  std::shared_ptr<const Tokenizer> tokenizer = {};
};

struct BatchOptions {
  int64_t rows = 8;         ///< requests at work at the same time; others wait
  int64_t capacity = 1024;  ///< tokens a row has room for, the prompt included
  /// How far a step looks back: as far as the first of these that holds its longest row, each a program of
  /// its own. Empty: 64, 256, 1024 and so on up to the capacity.
  std::vector<int64_t> buckets = {};
  CompileOptions compile = {};
};

/// Continuous batching: requests join a running batch as rows become free and leave it when they end. Each
/// gets the tokens that generate() gives for it alone. One compiled step serves all rows, each with its own
/// position and adapter; the prompt of a joining request is run eagerly and by itself. Not for
/// encoder-decoders.
///
/// submit(), cancel() and idle() may be called from any thread, also by callbacks; step() and warm_up() from
/// one at a time, and by no callback.
class BatchGenerator {
 public:
  explicit BatchGenerator(std::shared_ptr<PreTrainedModel> model, const BatchOptions& options = {});
  /// Adapters may be loaded, changed and deleted between steps, as with compile(peft), and not while another
  /// thread is in submit().
  explicit BatchGenerator(std::shared_ptr<PeftModel> model, const BatchOptions& options = {});
  ~BatchGenerator();
  BatchGenerator(BatchGenerator&&) noexcept;
  BatchGenerator& operator=(BatchGenerator&&) noexcept;

  /// The request's id. UsageError for what cannot be generated: a prompt too long for a row, say.
  int64_t submit(BatchRequest request);
  /// False where no such request waits or is at work. Its callbacks are not called any more, but for one that
  /// another thread is in at this moment.
  bool cancel(int64_t id);
  /// Lets waiting requests into free rows and gives every row a token. False where nothing is left to do.
  bool step();
  /// Whether nothing waits and nothing is at work.
  bool idle() const;
  /// Compiles the steps of all buckets, so that no later step does. UsageError unless idle.
  void warm_up();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace graft
