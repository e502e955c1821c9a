// One adapter's part on one layer: its tensors and what they do.
#pragma once
#include <functional>
#include <map>

#include "adapters/gate.h"
#include "graft/adapter_config.h"
#include "graft/model.h"
#include "graft/safetensors.h"
#include "nn/weighted.h"
#include "support/trained_at_times.h"

namespace graft::adapters {

/// Tensors that all parts of one adapter share (VeRA's projections, VB-LoRA's bank).
class Shared : public torch::nn::Module, public TrainedAtTimes {
 public:
  struct Entry {
    std::string key;  ///< in the adapter's file, whole: "base_model.vera_A"
    at::Tensor tensor;
    bool trainable;
    bool saved = true;
  };
  virtual std::vector<Entry> entries() const = 0;
  /// What training adds to the model's loss; undefined for none.
  virtual at::Tensor penalty() const { return {}; }
  virtual bool has_penalty() const { return false; }
  /// What belongs into the adapter's file.
  virtual NamedTensors saved() const;
  /// As a Site: it stands in the tree by a number.
  bool is_serializable() const override { return false; }
  /// All parts are there. FormatError for files beside the adapter's own that do not fit.
  virtual void finish(const PreTrainedModel& /*model*/) {}
};

/// Where an adapter's tensors come from: its file, or nowhere when it is made fresh.
class TensorSource {
 public:
  virtual ~TensorSource() = default;
  /// The tensor under `key`, which must have that shape; undefined when the adapter is fresh.
  virtual at::Tensor take(const std::string& key, at::IntArrayRef shape) = 0;
  /// Like take(), undefined too where the file has no such key.
  virtual at::Tensor take_if_there(const std::string& key, at::IntArrayRef shape) = 0;
  virtual bool fresh() const = 0;
  /// The shapes of all tensors whose keys end so; none when the adapter is fresh.
  virtual std::vector<std::vector<int64_t>> shapes(std::string_view ending) const = 0;
};

/// What a part is built from.
struct PartBuild {
  const AdapterConfig& config;
  nn::WeightedLayer& layer;
  std::string path;  ///< of the layer: "model.layers.0.self_attn.q_proj"
  TensorSource& source;
  Shared* shared = nullptr;
  /// What PEFT's names of the model's own modules start with.
  std::string_view root = "base_model.model.";
  const PreTrainedModel* model = nullptr;
  /// Of the layer's parameters, where the configuration names one: ".weight".
  std::string_view parameter = "";

  bool fresh() const { return source.fresh(); }
  /// In [out, in] for a linear layer of either spelling.
  int64_t in_features() const;
  int64_t out_features() const;
  /// Fresh tensors are float32 on the layer's device, as PEFT makes them, whatever the base is.
  at::TensorOptions options() const;
  /// The key of one of the layer's tensors in the adapter's file.
  std::string key(std::string_view suffix) const;
  /// What a field such as rank_pattern has for this layer, or the fallback.
  double by_pattern(std::string_view field, double fallback) const;
  /// How many groups a convolution's channels are in; 1 for any other layer.
  int64_t groups() const;
  /// ConfigError: this method cannot be put on this layer.
  [[noreturn]] void refuse(const std::string& why = "") const;
};

/// Whether a key of a field such as rank_pattern means the layer at `path`, as PEFT has it for this method.
bool pattern_means(const AdapterConfig& config, std::string_view field, const std::string& key,
                   const std::string& path);
/// What such a field has for the layer, or the fallback.
double value_by_pattern(const AdapterConfig& config, std::string_view field, const std::string& path,
                        double fallback);

/// The layer without the adapter at hand: the layer itself, with those adapters that come before.
using Next = std::function<at::Tensor(const at::Tensor&)>;

/// A layer's weight and bias while adapters are merged into them.
struct Weights {
  at::Tensor weight, bias;
  at::Tensor base;  ///< the weight before any merge, which some methods measure themselves against
  std::map<std::string, at::Tensor> buffers = {};  ///< by name; batch normalisation's statistics
};

/// ConfigError for a tensor that an adapter's configuration makes too large: Linux would promise memory that
/// it has not, and end the program that takes it.
void check_fits_memory(std::string_view what, at::IntArrayRef shape);
/// Such a tensor, not filled, if it fits.
at::Tensor fresh_tensor(std::string_view what, at::IntArrayRef shape, at::TensorOptions options = at::kFloat);

/// What a part is on its layer beside a method's own: what orders parts there (Site).
constexpr const char* kChangedBase = "changed base";  ///< the base that the adapter goes with
constexpr const char* kTrainableTokens = "trainable_tokens";
constexpr const char* kModulesToSave = "modules_to_save";
constexpr const char* kBias = "bias";

class Part;

/// Computes several parts of one layer at once: y with all of them, each on the rows of its slot.
using Joint = at::Tensor (*)(const std::vector<const Part*>& parts, const std::vector<int64_t>& slots,
                             const at::Tensor& table, const at::Tensor& x, const at::Tensor& y);

class Part : public torch::nn::Module, public TrainedAtTimes {
 public:
  struct Entry {
    std::string key;   ///< in the adapter's file: "base_model.model.lm_head.lora_A.weight"
    std::string name;  ///< in this module's table
    bool trainable;
  };

  explicit Part(const PartBuild& build) : layer_(&build.layer) {}

  /// Whole numbers (places, token ids) stay what they are, unlike in torch's own modules.
  using torch::nn::Module::to;
  void to(torch::Dtype dtype, bool non_blocking = false) override;
  void to(torch::Device device, torch::Dtype dtype, bool non_blocking = false) override;

  /// The layer's result for x with this adapter, on the rows of the gate.
  virtual at::Tensor forward(const at::Tensor& x, const Next& next, const Gate& gate) = 0;
  /// How parts of this kind are computed together where the choice of rows is data; null: one by one.
  virtual Joint joint() const { return nullptr; }
  /// The layer's weight as this adapter has it as its base: most leave it as it is.
  virtual at::Tensor base_weight() const { return layer().weight; }
  /// Puts the adapter into the weights, out of place.
  virtual void merge(Weights& weights) const = 0;
  /// Of two adapters of this method, the first sits nearer to the layer than the second, not farther from it.
  virtual bool first_inside() const { return false; }
  /// Whether two of this method give something else in the other order.
  virtual bool order_matters() const { return false; }
  /// Two of this kind cannot be active on one layer at once.
  virtual bool exclusive() const { return false; }
  /// Whether this and the other, a part of another adapter on the same layer, cannot be active at once.
  virtual bool excludes(const Part& other) const { return exclusive() && other.exclusive(); }
  /// How many tokens the adapter's table has on this layer, where it is another number than the model's.
  virtual std::optional<int64_t> resized_rows() const { return {}; }
  /// Whether the method adds to the layer's weight times a factor of its own, and the factor's change.
  virtual bool scale(double /*factor*/) { return false; }

  /// Whether another adapter's part could live in this one's place: then a program that holds this one's
  /// tensors need not be compiled again for the other.
  virtual bool can_take(const Part& other) const;
  /// Takes over what the other holds, in place.
  virtual void take(const Part& other);
  /// Makes the part do nothing; false where it cannot.
  virtual bool silence() { return false; }

  const std::vector<Entry>& entries() const { return entries_; }
  /// What the adapter's file has of this part: the entries, unless the method packs them.
  virtual NamedTensors saved() const;
  /// In this module's table; what training changes.
  at::Tensor tensor(const Entry& entry) const;
  const nn::WeightedLayer& layer() const { return *layer_; }
  /// A file may hold a layer's tensors in several dtypes, which no product takes: they get the widest.
  void to_one_dtype();

 protected:
  /// A tensor of the adapter's file, or an empty one of that shape to be filled when the adapter is fresh,
  /// then of that dtype.
  at::Tensor parameter(const PartBuild& build, std::string_view suffix, at::IntArrayRef shape,
                       bool trainable = true, at::ScalarType fresh_dtype = at::kFloat);
  /// The same, with a copy of the base's tensor when the adapter is fresh.
  at::Tensor copied(const PartBuild& build, std::string_view suffix, const at::Tensor& base,
                    bool trainable = true);
  /// Data of the program that no file holds.
  at::Tensor constant(const std::string& name, const at::Tensor& value) {
    return register_buffer(name, value);
  }

 private:
  at::Tensor enter(const PartBuild& build, std::string_view suffix, const at::Tensor& tensor, bool trainable);

  nn::WeightedLayer* layer_;  // owns this part
  std::vector<Entry> entries_;
};

/// Whether two modules hold tensors of the same names, shapes, dtypes and devices.
bool same_tensors(const torch::nn::Module& a, const torch::nn::Module& b);
/// Copies the tensors of one into the other, in place.
void copy_tensors(const torch::nn::Module& from, torch::nn::Module& to);

/// x in the dtype of the weight it meets, as PEFT casts it.
at::Tensor cast_to(const at::Tensor& x, const at::Tensor& weight);
/// [out, in] from what the layer holds: Conv1D has it the other way round.
at::Tensor out_in(const nn::WeightedLayer& layer, const at::Tensor& weight);

}  // namespace graft::adapters
