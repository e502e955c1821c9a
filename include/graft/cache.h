// Key/value caches for step-by-step decoding, in two forms.
//
// GrowingCache concatenates: any length, a new shape each step. StaticCache writes into buffers of a fixed
// capacity: shapes never change, which is what a compiled decode step needs. Both hold [batch, heads, length,
// head_dim] per layer.
//
// A compiled model takes a StaticCache (or an EncoderDecoderCache over one) that holds tokens: its buffers
// and its position are inputs that the program changes in place, so that one program serves every step.
// Tokens that are held when the model is cast or moved follow it in its next call; a compiled one refuses.
//
//   auto cache = std::make_shared<graft::StaticCache>(256);
//   model->forward({.input_ids = prompt, .past_key_values = cache});       // makes the buffers
//   auto fast = graft::compile(model);
//   fast({.input_ids = next, .past_key_values = cache});                   // every step: no recompile
#pragma once
#include <ATen/core/Tensor.h>

#include <memory>
#include <utility>
#include <vector>

#include "graft/leaves.h"

namespace graft {

class KVCache : public std::enable_shared_from_this<KVCache> {
 public:
  virtual ~KVCache() = default;

  /// Adds the new tokens' keys and values of one layer; gives what the layer attends to.
  virtual std::pair<at::Tensor, at::Tensor> update(int64_t layer, const at::Tensor& keys,
                                                   const at::Tensor& values) = 0;
  /// Called once per model call, after all layers, with the number of tokens that were added.
  virtual void advance(int64_t tokens) = 0;
  /// Tokens held before the current call.
  virtual int64_t seen() const = 0;
  /// The same as a tensor on `device`, so that positions can be computed without reading it on the host.
  virtual at::Tensor seen_tensor(const at::Device& device) const = 0;
  /// Length of what update() will give for `new_tokens` more tokens.
  virtual int64_t attended_length(int64_t new_tokens) const = 0;
  /// Forgets everything; a static cache keeps its buffers.
  virtual void reset() = 0;
  /// For compile(), before a call that adds `new_tokens`: a copy over this cache's tensors, in which they
  /// have been visited. What the copy counts on the host this one counts afterwards.
  virtual std::shared_ptr<KVCache> visited(LeafVisitor& visitor, int64_t new_tokens) = 0;
  /// Forgets the last `tokens` of every row, as if they had never been run: at most as many as are held.
  virtual void drop_last(int64_t tokens) = 0;
  /// Row i becomes what row rows[i] was, for all layers: [batch], int64.
  virtual void reorder(const at::Tensor& rows) = 0;
};

class GrowingCache : public KVCache {
 public:
  std::pair<at::Tensor, at::Tensor> update(int64_t layer, const at::Tensor& keys,
                                           const at::Tensor& values) override;
  void advance(int64_t tokens) override { seen_ += tokens; }
  int64_t seen() const override { return seen_; }
  at::Tensor seen_tensor(const at::Device& device) const override;
  int64_t attended_length(int64_t new_tokens) const override { return seen_ + new_tokens; }
  void reset() override;
  void drop_last(int64_t tokens) override;
  void reorder(const at::Tensor& rows) override;
  /// Refuses: a new shape each step would be a new program each step.
  std::shared_ptr<KVCache> visited(LeafVisitor& visitor, int64_t new_tokens) override;

 private:
  std::vector<std::pair<at::Tensor, at::Tensor>> layers_;
  int64_t seen_ = 0;
};

class StaticCache : public KVCache {
 public:
  /// Room for `capacity` tokens; going past it is a UsageError before anything is written.
  explicit StaticCache(int64_t capacity);
  std::pair<at::Tensor, at::Tensor> update(int64_t layer, const at::Tensor& keys,
                                           const at::Tensor& values) override;
  void advance(int64_t tokens) override;
  int64_t seen() const override { return seen_; }
  at::Tensor seen_tensor(const at::Device& device) const override;
  int64_t attended_length(int64_t new_tokens) const override;
  void reset() override;
  void drop_last(int64_t tokens) override;
  void reorder(const at::Tensor& rows) override;
  std::shared_ptr<KVCache> visited(LeafVisitor& visitor, int64_t new_tokens) override;
  int64_t capacity() const { return capacity_; }
  /// A copy with room for more, which holds the same tokens.
  std::shared_ptr<StaticCache> enlarged(int64_t capacity) const;

 private:
  std::vector<std::pair<at::Tensor, at::Tensor>> layers_;
  int64_t capacity_, seen_ = 0;
  bool given_to_program_ = false;
  mutable at::Tensor position_;  // `seen_` on the layers' device
};

/// An encoder-decoder's: a cache of the decoder's own tokens, and beside it the encoder's keys and values of
/// each layer. Once it holds those, calls need no encoder and no input_ids.
class EncoderDecoderCache : public KVCache {
 public:
  /// Growing.
  EncoderDecoderCache();
  /// Static: room for `capacity` tokens of the decoder. The encoder's are kept filled up with zeros to
  /// `source_capacity`, so that sources of different lengths are one program: after the first call
  /// attention_mask is as long as that and has zeros for what was filled up.
  EncoderDecoderCache(int64_t capacity, int64_t source_capacity);

  bool holds_encoder() const { return !encoder_.empty(); }
  /// The encoder's keys and values for one layer; undefined before keep_encoder().
  std::pair<at::Tensor, at::Tensor> encoder(int64_t layer) const;
  void keep_encoder(int64_t layer, const at::Tensor& keys, const at::Tensor& values);

  std::pair<at::Tensor, at::Tensor> update(int64_t layer, const at::Tensor& keys,
                                           const at::Tensor& values) override {
    return own_->update(layer, keys, values);
  }
  void advance(int64_t tokens) override { own_->advance(tokens); }
  int64_t seen() const override { return own_->seen(); }
  at::Tensor seen_tensor(const at::Device& device) const override { return own_->seen_tensor(device); }
  int64_t attended_length(int64_t new_tokens) const override { return own_->attended_length(new_tokens); }
  void reset() override;
  void drop_last(int64_t tokens) override { own_->drop_last(tokens); }
  /// The decoder's tokens only: rows that change places are of one source.
  void reorder(const at::Tensor& rows) override { own_->reorder(rows); }
  std::shared_ptr<KVCache> visited(LeafVisitor& visitor, int64_t new_tokens) override;

 private:
  std::shared_ptr<KVCache> own_;  // the decoder's
  int64_t source_capacity_ = 0;   // 0: as long as the source is
  std::vector<std::pair<at::Tensor, at::Tensor>> encoder_;
};

}  // namespace graft
