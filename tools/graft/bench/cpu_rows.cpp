#include "bench/cpu_rows.h"

namespace graft::cli::bench {
namespace {

struct Model {
  std::string name;
  ordered_json config, inputs, labels;
  Goals forward, backward;
};

/// The design's figures are small Llama's: 6 layers of 448, batches of 4 x 60.
Model llama(const std::string& name, int64_t layers, int64_t hidden, int64_t intermediate, int64_t heads) {
  constexpr int64_t kVocabulary = 8000;
  const ordered_json config{{"model_type", "llama"},
                            {"architectures", {"LlamaForCausalLM"}},
                            {"vocab_size", kVocabulary},
                            {"hidden_size", hidden},
                            {"intermediate_size", intermediate},
                            {"num_hidden_layers", layers},
                            {"num_attention_heads", heads},
                            {"num_key_value_heads", heads},
                            {"max_position_embeddings", 256}};
  const auto ids = whole_numbers({4, 60}, kVocabulary);
  return {.name = name,
          .config = config,
          .inputs = {{"input_ids", ids}},
          .labels = ids,
          .forward = {.steady = 0.7, .cold = 1.0 / 50, .warm = 1.0 / 25},
          .backward = {.steady = 0.8, .cold = 1.0 / 50, .warm = 1.0 / 25}};
}

// Dropout is off everywhere: graft, eager Python and Inductor draw different random numbers, and results are
// compared.
Model opt() {
  const auto ids = whole_numbers({4, 64}, 8000);
  return {.name = "opt",
          .config = {{"model_type", "opt"},
                     {"architectures", {"OPTForCausalLM"}},
                     {"vocab_size", 8000},
                     {"hidden_size", 256},
                     {"word_embed_proj_dim", 256},
                     {"ffn_dim", 1024},
                     {"num_hidden_layers", 4},
                     {"num_attention_heads", 4},
                     {"max_position_embeddings", 128},
                     {"dropout", 0.0},
                     {"attention_dropout", 0.0}},
          .inputs = {{"input_ids", ids}},
          .labels = ids,
          .forward = {},
          .backward = {}};
}

Model bert() {
  const auto ids = whole_numbers({4, 64}, 8000);
  return {.name = "bert",
          .config = {{"model_type", "bert"},
                     {"architectures", {"BertForMaskedLM"}},
                     {"vocab_size", 8000},
                     {"hidden_size", 256},
                     {"intermediate_size", 1024},
                     {"num_hidden_layers", 4},
                     {"num_attention_heads", 4},
                     {"max_position_embeddings", 128},
                     {"hidden_dropout_prob", 0.0},
                     {"attention_probs_dropout_prob", 0.0}},
          .inputs = {{"input_ids", ids}},
          .labels = ids,
          .forward = {},
          .backward = {}};
}

Model vit() {
  return {.name = "vit",
          .config = {{"model_type", "vit"},
                     {"architectures", {"ViTForImageClassification"}},
                     {"hidden_size", 192},
                     {"intermediate_size", 768},
                     {"num_hidden_layers", 6},
                     {"num_attention_heads", 3},
                     {"image_size", 96},
                     {"patch_size", 8},
                     {"num_labels", 10}},
          .inputs = {{"pixel_values", numbers({4, 3, 96, 96})}},
          .labels = whole_numbers({4}, 10),
          .forward = {},
          .backward = {}};
}

Model resnet() {
  return {.name = "resnet",
          .config = {{"model_type", "resnet"},
                     {"architectures", {"ResNetForImageClassification"}},
                     {"embedding_size", 64},
                     {"hidden_sizes", {64, 128, 256}},
                     {"depths", {2, 2, 2}},
                     {"layer_type", "basic"},
                     {"num_labels", 10}},
          .inputs = {{"pixel_values", numbers({8, 3, 96, 96})}},
          .labels = whole_numbers({8}, 10),
          .forward = {},
          .backward = {}};
}

void append(const Model& model, std::vector<Row>& rows) {
  rows.push_back({.name = model.name + "-forward",
                  .work = "forward",
                  .config = model.config,
                  .inputs = model.inputs,
                  .tolerance = loose_single(),
                  .goals = model.forward});
  auto labelled = model.inputs;
  labelled["labels"] = model.labels;
  rows.push_back({.name = model.name + "-fwd+bwd",
                  .work = "backward",
                  .config = model.config,
                  .inputs = labelled,
                  .tolerance = loose_single(),
                  .goals = model.backward});
  rows.push_back({.name = model.name + "-step",
                  .work = "step",
                  .config = model.config,
                  .inputs = labelled,
                  .tolerance = loose_single(),
                  .goals = model.backward});
}

Row micro(const std::string& op, const std::string& dtype, const ordered_json& inputs,
          int64_t elements_moved) {
  const bool single = dtype == "float32";
  return {.name = "micro-" + op + "-" + dtype,
          .work = op,
          .config = nullptr,
          .inputs = inputs,
          .bytes = elements_moved * (single ? 4 : 2),
          .tolerance = single ? loose_single() : loose_half(),
          .goals = {.bandwidth = 0.8}};
}

void append_micro_cases(const std::string& dtype, std::vector<Row>& rows) {
  // 128 MB a tensor in either dtype: more than caches hold, so that the copy measures memory and not a cache.
  constexpr int64_t kColumns = 1024;
  const int64_t count = dtype == "float32" ? 32768 : 65536, elements = count * kColumns;
  const auto matrix = numbers({count, kColumns}, dtype), flat = numbers({elements}, dtype),
             row = numbers({kColumns}, dtype);
  rows.push_back(micro("pointwise", dtype, {{"x", flat}, {"y", flat}, {"z", flat}}, 4 * elements));
  rows.push_back(micro("layer_norm", dtype, {{"x", matrix}, {"weight", row}, {"bias", row}},
                       2 * elements + 2 * kColumns));
  rows.push_back(micro("rms_norm", dtype, {{"x", matrix}, {"weight", row}}, 2 * elements + kColumns));
  rows.push_back(micro("softmax", dtype, {{"x", matrix}}, 2 * elements));
  rows.push_back(
      micro("cross_entropy", dtype, {{"x", matrix}, {"target", whole_numbers({count}, kColumns)}}, elements));
}

}  // namespace

std::vector<Row> cpu_rows() {
  std::vector<Row> rows;
  for (const auto& model :
       {llama("llama6", 6, 448, 1216, 7), llama("llama8", 8, 512, 1376, 8), opt(), bert(), vit(), resnet()})
    append(model, rows);
  for (const char* dtype : {"float32", "bfloat16"}) append_micro_cases(dtype, rows);
  return rows;
}

}  // namespace graft::cli::bench
