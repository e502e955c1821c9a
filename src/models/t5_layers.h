// The parts of T5 below its heads: one stack of blocks, as an encoder or as a decoder.
#pragma once
#include "graft/model.h"
#include "nn/activation.h"
#include "nn/embedding.h"

namespace graft {

struct T5Sizes {
  int64_t model, key, feed_forward, heads, encoder_layers, decoder_layers, vocab, buckets, max_distance;
  double eps, dropout, init_factor;
  bool gated;
  nn::Activation activation;

  /// ConfigError for what is not supported.
  explicit T5Sizes(const Config& config);
  int64_t inner() const { return heads * key; }
};

/// What a stack is called with, beside its embedded tokens.
struct T5StackInputs {
  at::Tensor mask;            ///< [batch, seq (+ seen)] of 0/1, or undefined
  at::Tensor encoder_states;  ///< of a decoder: [batch, source, model]; undefined where the cache holds them
  at::Tensor encoder_mask;    ///< [batch, source] of 0/1, or undefined
  std::shared_ptr<EncoderDecoderCache> cache;  ///< of a decoder; may be null
  bool recompute = false;                      ///< gradient checkpointing, block by block
};

class T5Block;
class T5LayerNorm;

class T5Stack : public torch::nn::Module {
 public:
  /// `table`: the tokens', which is both stacks' own.
  T5Stack(const nn::Build& b, const T5Sizes& s, bool decoder, const at::Tensor& table);
  ~T5Stack() override;
  at::Tensor forward(const at::Tensor& tokens, const T5StackInputs& in);

  std::shared_ptr<nn::Embedding> embed_tokens;

 private:
  bool decoder_;
  double dropout_;
  std::shared_ptr<nn::List<T5Block>> block;
  std::shared_ptr<T5LayerNorm> final_layer_norm;
};

}  // namespace graft
