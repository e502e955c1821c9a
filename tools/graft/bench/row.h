// A row of `graft bench`: one piece of work, the same for every contender.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace graft::cli::bench {

using nlohmann::ordered_json;

/// Ratios to reach; 0: none is set.
struct Goals {
  double steady = 0;           ///< graft's time in torch.compile's, at most
  double cold = 0;             ///< graft's first call in torch.compile's, caches empty, at most
  double warm = 0;             ///< the same with full caches
  double bandwidth = 0;        ///< of a plain copy's, at least
  double llama_cpp = 0;        ///< tokens a second in llama.cpp's, at least
  double host = 0;             ///< time outside of a training step's computation in that inside, at most
  double memory = 0;           ///< graft's peak memory in torch.compile's, at most
  double reduce_overhead = 0;  ///< as `steady`, both sides by CUDA graphs
  double speed = 0;            ///< of quick rows: graft's own eager's time in graft's, at least
};

/// Where a row's model is, and in what precision.
struct Place {
  std::string device = "cpu", dtype = "float32";
  bool half() const { return dtype != "float32"; }
};

/// What a row has beside a model: adapters on it.
struct Adapters {
  ordered_json config;  ///< adapter_config.json; null: none
  int64_t count = 1;    ///< how many of that kind there are files of
  /// "one" works; or of three: "unused" (every row asks for the base), "disabled", "switched" (another before
  /// each call), "mixed" (by row). "base": the model without any.
  std::string state = "one";
  int64_t loaded = 0;                ///< the work "load": how many there are already
  bool peft_gradients_right = true;  ///< else they are not compared with PEFT's

  bool any() const { return !config.is_null(); }
};

struct Row {
  std::string name;
  std::string work;  ///< "forward", "backward", "step", "generate", "train" of a model, "load" of an adapter,
                     ///< else an op
  ordered_json config;  ///< the model's config.json; null for an op
  /// name -> {shape, dtype[, below][, low, high]}: random numbers, whole ones below `below`, others evenly
  /// from `low` to `high`.
  ordered_json inputs;
  int64_t bytes = 0;     ///< an op: what a perfect kernel reads and writes; 0 for a model
  double tolerance = 0;  ///< how far results may lie apart, in shares of the largest value
  Goals goals;
  Adapters adapters = {};
  std::string over = {};  ///< the row whose times this one's are shown in, which is measured in turns with it
  double over_goal = 0;   ///< that ratio, at most; 0: none is set
  int64_t new_tokens = 0;       ///< the work "generate": how many
  std::string model_file = {};  ///< the weights, where they are not random: a GGUF file
  Place place = {};
  bool modes = false;  ///< the modes reduce-overhead and max-autotune take part, too
  bool alone = false;  ///< memory does not hold all contenders: one is measured after the other, not in turns
  /// Of the suite `ops`, where a call takes about a millisecond: the contenders' processes go on with the
  /// next row, first calls are cold only, turns are short.
  bool quick = false;
  std::vector<std::string> trained =
      {};  ///< an op's inputs that have gradients; empty: it has no backward pass

  bool is_model() const { return !config.is_null(); }
};

/// Whether --only NAME means the row: its whole name, or the beginning of it up to a dash.
bool fits(const std::string& row, const std::string& wanted);

/// New tokens of all rows of a call of "generate"; 0 for other work, and where only the first one is made.
int64_t tokens_of(const Row& row);

/// An input of random numbers.
ordered_json numbers(const std::vector<int64_t>& shape, const std::string& dtype = "float32");
/// An input of whole numbers from 0 on.
ordered_json whole_numbers(const std::vector<int64_t>& shape, int64_t below);
/// How far results of float32 and of half precision may lie apart.
double loose_single();
double loose_half();

/// What a row is, for machines: {"name", "work", "config", "adapter", ...}.
ordered_json description(const Row& row);

}  // namespace graft::cli::bench
