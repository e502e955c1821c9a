// The compiled form of a PeftModel: one program, into which the choice of adapters goes as a table of
// booleans [row, slot], and the tokens of a prompt method as a tensor: another prompt of the same length is
// the same program.
#include <ATen/ATen.h>

#include <algorithm>
#include <unordered_set>

#include "adapters/peft_state.h"
#include "adapters/prompted_call.h"
#include "graft/error.h"

namespace graft {
using adapters::Gate;
using adapters::Routing;

namespace {

/// Of a batch, served by an adapter.
constexpr int64_t kNoRow = 0, kEveryRow = 1, kSomeRows = 2;

std::shared_ptr<Routing> routing_by(const void* owner, const at::Tensor& gates, size_t slots,
                                    const std::optional<std::vector<int64_t>>& parts) {
  auto routing = std::make_shared<Routing>(owner);
  for (size_t slot = 0; slot < (parts ? parts->size() : slots); ++slot) {
    const auto part = parts ? (*parts)[slot] : kSomeRows;
    if (part == kEveryRow) routing->set(slot, Gate::all());
    if (part == kSomeRows) routing->set(slot, Gate::data(gates, static_cast<int64_t>(slot)));
  }
  return routing;
}

/// A table whose numbers the host remembers (runtime/routing_table.h).
at::Tensor on_device(const at::Tensor& table, at::Device device) {
  if (table.device() == device) return table;
  static const auto op = c10::Dispatcher::singleton()
                             .findSchemaOrThrow("graft::routing_table", "")
                             .typed<at::Tensor(const at::Tensor&, at::Device)>();
  return op.call(table, device);
}

}  // namespace

CompiledPeftModel::CompiledPeftModel(std::shared_ptr<PeftModel> model, const CompileOptions& options)
    : model_(std::move(model)),
      compiled_(compile(
          [peft = model_.get()](const ModelInputs& inputs, const at::Tensor& gates,
                                const VirtualTokens& prompt, const RowData& rows,
                                const std::optional<std::vector<int64_t>>& parts) {
            const auto& state = *peft->state_;
            return state.run(inputs, routing_by(state.routing.get(), gates, state.next_slot, parts), rows,
                             prompt);
          },
          options, {model_->state_->program})),
      eager_(options.backend == Backend::eager) {
  if (eager_) return;
  const std::unique_lock<FairSharedMutex> lock(model_->state_->guard);
  model_->state_->compiled = true;
}

at::Tensor CompiledPeftModel::gates(const ModelInputs& inputs, const AdapterCall& call) const {
  const auto& state = *model_->state_;
  const int64_t batch = batch_of(inputs);
  const auto slots = static_cast<int64_t>(state.next_slot);
  auto gates = at::zeros({batch, slots}, at::kBool);
  auto table = gates.accessor<bool, 2>();
  if (call.adapter_names.empty()) {
    const auto routing = state.routing->get();
    for (int64_t slot = 0; slot < slots; ++slot)
      if (routing->gate(static_cast<size_t>(slot)))
        for (int64_t row = 0; row < batch; ++row) table[row][slot] = true;
  } else {
    state.check_rows(call.adapter_names, batch);
    for (int64_t row = 0; row < batch; ++row)
      if (const auto& name = call.adapter_names[static_cast<size_t>(row)]; name != "__base__")
        if (const auto slot = state.get(name).slot) table[row][static_cast<int64_t>(*slot)] = true;
  }
  return gates;
}

/// Where adapters draw random numbers, which of them take part is known to the program: one that serves no
/// row draws none.
std::optional<std::vector<int64_t>> CompiledPeftModel::taking_part(const at::Tensor& gates) const {
  // By the layers' own flags: a part of the model may be trained alone.
  const auto draws_now = [](const auto& adapter) {
    using adapters::Draws;
    if (adapter->draws != Draws::in_training) return adapter->draws == Draws::always;
    return std::ranges::any_of(adapter->parts, [](const auto& placed) { return placed.part->is_training(); });
  };
  if (std::ranges::none_of(model_->state_->all, draws_now)) return std::nullopt;
  std::vector<int64_t> parts;
  const auto table = gates.accessor<bool, 2>();
  for (int64_t slot = 0; slot < table.size(1); ++slot) {
    int64_t rows = 0;
    for (int64_t row = 0; row < table.size(0); ++row) rows += table[row][slot];
    parts.push_back(rows == 0 ? kNoRow : rows == table.size(0) ? kEveryRow : kSomeRows);
  }
  // Another adapter that does not take part is the same program.
  while (!parts.empty() && parts.back() == kNoRow) parts.pop_back();
  return parts;
}

/// A program that has all adapters in it has gradients for all that are trained. In eager code an adapter
/// that serves no row has none, and where nothing that takes part is trained the results have no history.
CompiledPeftModel::History CompiledPeftModel::history_of(const AdapterCall& call) const {
  if (!at::GradMode::is_enabled()) return History::of_the_program;
  const auto& state = *model_->state_;
  const auto routing = state.routing->get();
  const auto serves = [&](const adapters::Adapter& adapter) {
    if (!adapter.slot) return state.prompting(call.adapter_names) == &adapter;
    if (call.adapter_names.empty()) return routing->gate(*adapter.slot) != nullptr;
    return std::ranges::find(call.adapter_names, adapter.name) != call.adapter_names.end();
  };
  // Nearly always all that are trained serve: their tensors need not be looked at.
  if (std::ranges::all_of(state.all, [&](const auto& a) { return a->rests || serves(*a); }))
    return History::of_the_program;
  std::unordered_set<const c10::TensorImpl*> of_adapters;
  bool served = false, idle = false;
  for (const auto& adapter : state.all) {
    if (adapter->rests) continue;
    for (const auto& named : adapter->tensors()) {
      of_adapters.insert(named.tensor.unsafeGetTensorImpl());
      if (named.tensor.requires_grad()) (serves(*adapter) ? served : idle) = true;
    }
  }
  if (!idle) return History::of_the_program;
  for (const auto& parameter : model_->base_model()->parameters())
    served |= parameter.requires_grad() && !of_adapters.contains(parameter.unsafeGetTensorImpl());
  return served ? History::of_eager_code : History::none;
}

ModelOutput CompiledPeftModel::operator()(const ModelInputs& inputs, const AdapterCall& given) const {
  if (eager_) return model_->forward(inputs, given);
  {
    const std::shared_lock<FairSharedMutex> lock(model_->state_->guard);
    const auto& state = *model_->state_;
    const AdapterCall& call = state.serving(given);
    const auto rows = state.row_data(inputs);
    const auto prompt = state.virtual_tokens(call.adapter_names, inputs.task_ids);
    auto table = gates(inputs, call);
    const auto parts = taking_part(table);
    const auto history = parts ? History::of_the_program : history_of(call);
    // Eager code drops out elements of an adapter's own rows. And it puts virtual tokens into a cache, the
    // first of many calls: whether they are there already is known on the host only.
    const bool mixed = parts && std::ranges::find(*parts, kSomeRows) != parts->end(),
               into_cache = prompt.any() && inputs.past_key_values;
    if (!mixed && history != History::of_eager_code && (!into_cache || inputs.past_key_values->seen() > 0)) {
      table = parts ? at::Tensor() : on_device(table, model_->base_model()->device());
      auto own = adapters::without_row_data(inputs);
      own.input_type_mask = inputs.input_type_mask;  // of the loss, which is the program's
      auto out = into_cache ? compiled_(adapters::with_virtual_tokens(prompt, own, *model_->model_), table,
                                        {}, rows, parts)
                            : compiled_(own, table, prompt, rows, parts);
      // A program in which some adapter knows more tokens than others has logits for all of them.
      if (const auto tokens = state.most_tokens(call.adapter_names, /*out=*/true);
          tokens && out.logits.defined() && out.logits.size(-1) > *tokens)
        out.logits = out.logits.narrow(-1, 0, *tokens);
      if (history == History::none)
        for (auto* tensor : {&out.loss, &out.logits, &out.last_hidden_state, &out.pooler_output})
          if (tensor->defined()) *tensor = tensor->detach();
      return out;
    }
  }
  return model_->forward(inputs, given);
}

std::string CompiledPeftModel::explain(const ModelInputs& inputs, const AdapterCall& given,
                                       const std::string& level) const {
  const std::shared_lock<FairSharedMutex> lock(model_->state_->guard);
  const auto& state = *model_->state_;
  const AdapterCall& call = state.serving(given);
  const auto table = gates(inputs, call);
  const auto parts = taking_part(table);
  auto own = adapters::without_row_data(inputs);
  own.input_type_mask = inputs.input_type_mask;
  return compiled_.explain(own, on_device(table, model_->base_model()->device()),
                           state.virtual_tokens(call.adapter_names, inputs.task_ids), state.row_data(inputs),
                           parts, level);
}

CompiledPeftModel compile(const std::shared_ptr<PeftModel>& model, const CompileOptions& options) {
  return {model, options};
}

}  // namespace graft
