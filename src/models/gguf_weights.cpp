#include "models/gguf_weights.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "graft/error.h"
#include "io/format/quote.h"

namespace graft {
namespace {

struct Renamed {
  std::string_view gguf, transformers;
};
constexpr Renamed kOutside[] = {
    {"token_embd", "model.embed_tokens"}, {"output_norm", "model.norm"}, {"output", "lm_head"}};
constexpr Renamed kInLayer[] = {{"attn_q", "self_attn.q_proj"},      {"attn_k", "self_attn.k_proj"},
                                {"attn_v", "self_attn.v_proj"},      {"attn_output", "self_attn.o_proj"},
                                {"ffn_gate", "mlp.gate_proj"},       {"ffn_up", "mlp.up_proj"},
                                {"ffn_down", "mlp.down_proj"},       {"attn_norm", "input_layernorm"},
                                {"attn_q_norm", "self_attn.q_norm"}, {"attn_k_norm", "self_attn.k_norm"}};
constexpr Renamed kTwoNorms[] = {{"ffn_norm", "post_attention_layernorm"}};
constexpr Renamed kFourNorms[] = {{"post_attention_norm", "post_attention_layernorm"},
                                  {"ffn_norm", "pre_feedforward_layernorm"},
                                  {"post_ffw_norm", "post_feedforward_layernorm"}};

std::string_view renamed(std::span<const Renamed> table, std::string_view name) {
  const auto found =
      std::find_if(table.begin(), table.end(), [&](const Renamed& r) { return r.gguf == name; });
  return found == table.end() ? std::string_view() : found->transformers;
}

/// The converter turned each head's rows [half, pair] into [pair, half], for rotary positions over
/// neighbouring pairs; transformers rotates halves.
at::Tensor rows_in_order(const at::Tensor& bytes, int64_t heads) {
  const auto rows = bytes.size(0), half = rows / heads / 2;
  auto shape = bytes.sizes().vec();
  shape.erase(shape.begin());
  shape.insert(shape.begin(), {heads, half, 2});
  return bytes.reshape(shape).transpose(1, 2).reshape(bytes.sizes());
}

}  // namespace

std::string transformers_name(const io::GgufArchitecture& architecture, std::string_view gguf_name) {
  const auto dot = gguf_name.rfind('.');
  if (dot == gguf_name.npos) return "";
  const auto stem = gguf_name.substr(0, dot), ending = gguf_name.substr(dot);
  if (ending != ".weight" && ending != ".bias") return "";
  if (!stem.starts_with("blk.")) {
    const auto name = renamed(kOutside, stem);
    return name.empty() ? "" : std::string(name) + std::string(ending);
  }
  const auto number_end = stem.find('.', 4);
  if (number_end == stem.npos) return "";
  const auto number = stem.substr(4, number_end - 4), part = stem.substr(number_end + 1);
  const bool is_number = !number.empty() && std::all_of(number.begin(), number.end(),
                                                        [](char c) { return c >= '0' && c <= '9'; });
  auto name = renamed(kInLayer, part);
  if (name.empty()) name = architecture.four_norms ? renamed(kFourNorms, part) : renamed(kTwoNorms, part);
  if (!is_number || name.empty()) return "";
  return "model.layers." + std::string(number) + "." + std::string(name) + std::string(ending);
}

GgufWeights::GgufWeights(std::shared_ptr<const io::GgufFile> file)
    : file_(std::move(file)), architecture_(io::gguf_architecture(file_->header(), file_->label())) {
  const auto config = io::gguf_config(file_->header(), file_->label());
  heads_ = config.at("num_attention_heads").get<int64_t>();
  kv_heads_ = config.value("num_key_value_heads", heads_);
  const auto fail = [&](const std::string& what) {
    throw FormatError("[gguf] " + file_->label() + ": " + what);
  };
  if (heads_ < 1 || kv_heads_ < 1) fail("the number of attention heads is below 1");
  for (const auto& tensor : file_->header().tensors) {
    const auto name = transformers_name(architecture_, tensor.name);
    if (name.empty())
      fail("the tensor " + io::quote(tensor.name) + " has no counterpart in transformers' " +
           std::string(architecture_.class_name));
    const bool q = tensor.name.find(".attn_q.") != tensor.name.npos,
               k = tensor.name.find(".attn_k.") != tensor.name.npos;
    const int64_t heads = q ? heads_ : kv_heads_;
    if (architecture_.permutes_qk && (q || k) && (tensor.shape.empty() || tensor.shape[0] % (2 * heads) != 0))
      fail("the rows of the tensor " + io::quote(tensor.name) + " cannot be dealt to " +
           std::to_string(heads) + " heads in pairs");
    names_.push_back(name);
    tensors_.emplace(name, &tensor);
    total_bytes_ += tensor.bytes / block_bytes(tensor.type) * block_elements(tensor.type) * sizeof(float);
  }
}

StoredWeight GgufWeights::stored(std::string_view name) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end())
    throw FormatError("[gguf] " + file_->label() + ": there is no tensor for " + io::quote(name));
  const io::GgufTensor& tensor = *found->second;
  StoredWeight weight{.type = tensor.type, .bytes = file_->bytes(tensor)};
  if (architecture_.permutes_qk && name.find("self_attn.q_proj.") != name.npos)
    weight.bytes = rows_in_order(weight.bytes, heads_);
  if (architecture_.permutes_qk && name.find("self_attn.k_proj.") != name.npos)
    weight.bytes = rows_in_order(weight.bytes, kv_heads_);
  if (architecture_.norms_plus_one && name.ends_with("norm.weight")) weight.shift = -1;
  return weight;
}

at::Tensor GgufWeights::tensor(std::string_view name) const {
  const auto weight = stored(name);
  const auto values = io::dequantized(weight.type, weight.bytes);
  return weight.shift == 0 ? values : values + weight.shift;
}

}  // namespace graft
