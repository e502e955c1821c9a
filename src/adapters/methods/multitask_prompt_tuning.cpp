#include "adapters/methods/multitask_prompt_tuning.h"

#include <ATen/ATen.h>

#include <map>

#include "adapters/methods/prompt_tuning.h"
#include "adapters/prompt.h"
#include "adapters/prompt_config.h"
#include "graft/error.h"

namespace graft::adapters {
namespace {

constexpr const char *kColumns = "prefix_task_cols", *kRows = "prefix_task_rows",
                     *kShared = "prompt_embeddings";

struct TaskMatrices {
  at::Tensor shared;         ///< [tokens, width]
  at::Tensor columns, rows;  ///< [tasks, tokens, rank], [tasks, rank, width]
};

/// What the training on source tasks left, as "prompt_tuning_init" says.
void start_from_source(TaskMatrices& made, const AdapterConfig& config) {
  const auto init = config.string("prompt_tuning_init"),
             path = config.string("prompt_tuning_init_state_dict_path");
  const auto file = SafetensorsFile::open(path);
  const auto take = [&](const char* name) {
    if (!file->contains(name))
      throw ConfigError("[adapters] \"prompt_tuning_init_state_dict_path\": " + path + " has no \"" + name +
                        "\"");
    return file->tensor(name).to(at::kFloat);
  };
  const auto put = [&](at::Tensor& to, const at::Tensor& from, const char* name) {
    if (to.sizes() != from.sizes())
      throw ConfigError("[adapters] \"prompt_tuning_init_state_dict_path\": \"" + std::string(name) +
                        "\" of " + path + " is of shape " + c10::str(from.sizes()) + " and should be " +
                        c10::str(to.sizes()));
    to.copy_(from);
  };
  put(made.shared, take(kShared), kShared);
  if (init == "ONLY_SOURCE_SHARED") return;
  const auto one = [&](const char* name) {
    const auto all = take(name);
    if (init == "AVERAGE_SOURCE_TASKS") return all.mean(0, /*keepdim=*/true);
    const int64_t task = config.integer("prompt_tuning_init_task");
    if (task < 0 || task >= all.size(0))
      throw ConfigError("[adapters] \"prompt_tuning_init_task\" is " + std::to_string(task) + ", and " +
                        path + " has " + std::to_string(all.size(0)) + " tasks");
    return all.slice(0, task, task + 1);
  };
  put(made.columns, one(kColumns), kColumns);
  put(made.rows, one(kRows), kRows);
}

TaskMatrices fresh_matrices(const PromptBuild& build, at::IntArrayRef shape, int64_t tasks, int64_t rank) {
  const at::NoGradGuard no_grad;
  TaskMatrices made{fresh_prompt(build, shape)};
  made.columns = fresh_tensor(kColumns, {tasks, shape[0], rank}).normal_(0, 0.02);
  made.rows = fresh_tensor(kRows, {tasks, rank, shape[1]}).normal_(0, 0.02);
  const auto init = build.config.string("prompt_tuning_init");
  if (init != "RANDOM" && init != "TEXT") start_from_source(made, build.config);
  return made;
}

class MultitaskPrompt : public Prompt {
 public:
  MultitaskPrompt(const PromptBuild& build, at::IntArrayRef shape, const TaskMatrices& fresh)
      : Prompt(build, shape, fresh.shared) {
    const int64_t tasks = build.config.integer("num_tasks"), rank = build.config.integer("num_ranks");
    const auto enter = [&](const char* name, at::IntArrayRef sizes, const at::Tensor& made) {
      const auto given = build.source.take(name, sizes);
      return register_parameter(name, (given.defined() ? given : made).to(build.model.device()), false);
    };
    columns_ = enter(kColumns, {tasks, shape[0], rank}, fresh.columns);
    rows_ = enter(kRows, {tasks, rank, shape[1]}, fresh.rows);
  }

  VirtualTokens virtual_tokens(const at::Tensor& task_ids) const override {
    if (!task_ids.defined())
      throw UsageError("[adapters] MULTITASK_PROMPT_TUNING needs task_ids: the task of each row");
    const auto ids = task_ids.to(columns_.device());
    const auto of_tasks = at::matmul(columns_.index_select(0, ids), rows_.index_select(0, ids));
    return {.embeddings = of_call(embeddings() * of_tasks)};
  }

  std::vector<Entry> entries() const override {
    auto all = Prompt::entries();
    all.push_back({kColumns, columns_, true});
    all.push_back({kRows, rows_, true});
    return all;
  }

  // All of its entries, not the embeddings of a prompt.
  // NOLINTNEXTLINE(bugprone-parent-virtual-call)
  NamedTensors saved() const override { return Shared::saved(); }

 private:
  at::Tensor columns_, rows_;
};

void check(const AdapterConfig& config) {
  check_prompt_tuning(config);
  for (const char* field : {"num_tasks", "num_ranks"})
    if (config.integer(field) < 1)
      throw ConfigError("[adapters] \"" + std::string(field) + "\" must be at least 1");
}

}  // namespace

Method multitask_prompt_tuning_method() {
  return {.type = "MULTITASK_PROMPT_TUNING",
          .fields = prompt_fields(
              {{"prompt_tuning_init",
                "RANDOM",
                {"RANDOM", "TEXT", "AVERAGE_SOURCE_TASKS", "EXACT_SOURCE_TASK", "ONLY_SOURCE_SHARED"}},
               {"prompt_tuning_init_text"},
               {"tokenizer_name_or_path"},
               {"tokenizer_kwargs", nullptr, {}, Field::Rule::default_only},
               {"prompt_tuning_init_state_dict_path"},
               {"prompt_tuning_init_task", 0},
               {"num_ranks", 1},
               {"num_tasks", 1}}),
          .check = check,
          .prompt = [](const PromptBuild& build) -> std::shared_ptr<Prompt> {
            const auto& config = build.config;
            const std::vector<int64_t> shape{total_virtual_tokens(config), config.integer("token_dim")};
            return std::make_shared<MultitaskPrompt>(
                build, shape,
                build.source.fresh()
                    ? fresh_matrices(build, shape, config.integer("num_tasks"), config.integer("num_ranks"))
                    : TaskMatrices{});
          },
          .takes_tasks = true,
          .data_fields = {"prompt_tuning_init", "prompt_tuning_init_text", "tokenizer_name_or_path",
                          "prompt_tuning_init_state_dict_path", "prompt_tuning_init_task",
                          "num_attention_heads", "num_layers"}};
}

}  // namespace graft::adapters
