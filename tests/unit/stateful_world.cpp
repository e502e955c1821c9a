// How a stateful program's tensors are made and changed.
#include "stateful_world.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/MemoryOverlap.h>
#include <torch/autograd.h>
#include <torch/optim/sgd.h>

#include <cstring>

namespace graft::stateful {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

double one_number(Random& r, at::ScalarType dtype, Data data, Sort sort) {
  const bool floats = at::isFloatingType(dtype) || at::isComplexType(dtype);
  auto value = sort == exact ? static_cast<double>(r.number(-3, 3))
                             : static_cast<double>(r.number(-2000, 2000)) / 1000;
  switch (data) {
    case Data::positive:
      return std::abs(value) + (sort == exact ? 1 : 0.25);
    case Data::zeros:
      return floats && r.chance(0.5) ? -0.0 : 0.0;
    case Data::special:
      if (!floats || !r.chance(0.4)) return value;
      return std::vector<double>{kInfinity, -kInfinity, NAN, -0.0, 0.0}[r.index(5)];
    case Data::tiny:
      return sort == smooth && r.chance(0.5) ? value * (dtype == at::kHalf     ? 1e-7
                                                        : dtype == at::kDouble ? 1e-310
                                                                               : 1e-40)
                                             : value;
    case Data::huge:
      return sort == smooth && r.chance(0.3) ? value * (dtype == at::kHalf     ? 3e4
                                                        : dtype == at::kDouble ? 1e300
                                                                               : 1e38)
                                             : value;
    case Data::plain:
      break;
  }
  return value;
}

at::ScalarType widened(at::ScalarType dtype, bool wide) {
  if (!wide) return dtype;
  return at::isComplexType(dtype) ? at::kComplexDouble : at::isFloatingType(dtype) ? at::kDouble : dtype;
}

/// The same values, otherwise in memory.
Tensor laid_out(const Tensor& values, Layout layout) {
  Ints backwards;
  for (int64_t d = values.dim(); d-- > 0;) backwards.push_back(d);
  if (values.dim() == 0 && layout != Layout::offset) return values;
  switch (layout) {
    case Layout::transposed:
      return values.permute(backwards).contiguous().permute(backwards);
    case Layout::every_other: {
      auto sizes = values.sizes().vec();
      sizes.back() *= 2;
      return at::zeros(sizes, values.options()).slice(-1, 1, sizes.back(), 2).copy_(values);
    }
    case Layout::expanded:
      return values.size(0) ? values.narrow(0, 0, 1).clone().expand(values.sizes()) : values;
    case Layout::offset:
      return at::zeros({values.numel() + 3}, values.options())
          .narrow(0, 3, values.numel())
          .view(values.sizes())
          .copy_(values);
    case Layout::channels_last:
      return values.dim() == 4 ? values.contiguous(at::MemoryFormat::ChannelsLast) : values;
    case Layout::rows:
      break;
  }
  return values;
}

bool same_type(const Tensor& t, const Type& type, bool wide) {
  return t.sizes() == at::IntArrayRef(type.sizes) && t.scalar_type() == widened(type.dtype, wide);
}

}  // namespace

Tensor numbers(const Type& type, uint64_t seed, Data data, Sort sort, bool wide) {
  Random r(seed);
  const auto count = c10::multiply_integers(type.sizes);
  const auto some = [&] {
    std::vector<double> values(static_cast<size_t>(count));
    for (auto& value : values) {
      value = one_number(r, type.dtype, data, sort);
      // What is not negative in the dtype is not negative here.
      if (type.dtype == at::kByte || type.dtype == at::kBool) value = std::abs(value);
    }
    return at::tensor(values, at::kDouble).view(type.sizes);
  };
  auto made = some();
  if (at::isComplexType(type.dtype)) made = at::complex(made, some());
  // Rounded as the type rounds, also for the judge.
  return made.to(type.dtype).to(widened(type.dtype, wide));
}

Cell::Cell(const Program& program, const Tensors& state, bool wide)
    : program_(&program), tensors_(state), wide_(wide) {
  for (size_t i = 0; i < state.size(); ++i) {
    const auto name = "s" + std::to_string(i);
    if (program.states[i].role == Role::parameter)
      register_parameter(name, state[i], program.states[i].requires_grad);
    if (program.states[i].role == Role::buffer) register_buffer(name, state[i]);
  }
}

Tensor& Cell::slot(size_t state) {
  // torch keeps the table of buffers to itself.
  const bool parameter = program_->states[state].role == Role::parameter;
  return parameter ? parameters_["s" + std::to_string(state)] : tensors_[state];
}

Tensors Cell::call(Tensors& given) {
  Tensors state;
  for (size_t i = 0; i < program_->states.size(); ++i) state.push_back(slot(i));
  return program_->run(
      given, state,
      {.training = is_training(), .wide = wide_, .host = host, .watch = watch ? &watch : nullptr});
}

Stack::Stack(const std::vector<std::shared_ptr<Cell>>& cells) : cells_(cells) {
  auto layers = register_module("layers", torch::nn::ModuleList());
  for (const auto& cell : cells) layers->push_back(cell);
}

Tensors Stack::forward(Tensors given) {
  Tensors all;
  for (const auto& cell : cells_) {
    const auto made = cell->forward(given);
    all.insert(all.end(), made.begin(), made.end());
    if (!made.empty() && made[0].sizes() == given[0].sizes() &&
        made[0].scalar_type() == given[0].scalar_type())
      given[0] = made[0];
  }
  return all;
}

World::World(const Program& program, bool wide)
    : program_(program), wide_(wide), states_(std::max<size_t>(program.states.size(), 1)) {
  const int count = program.kind == Kind::regional ? 2 : 1;
  for (int c = 0; c < count; ++c) {
    Tensors state;
    for (size_t i = 0; i < program.states.size(); ++i) {
      const auto& row = program.states[i];
      auto tensor = laid_out(
          numbers(row.type, 1000 + i + 100 * static_cast<uint64_t>(c), Data::plain, program.sort, wide),
          row.layout);
      if (row.from_blob && tensor.is_contiguous()) {
        blobs_.push_back(std::make_shared<std::vector<char>>(tensor.nbytes() + 64));
        auto* memory = blobs_.back()->data();
        if (tensor.nbytes()) std::memcpy(memory, tensor.const_data_ptr(), tensor.nbytes());
        tensor = at::from_blob(memory, tensor.sizes(), tensor.options());
      }
      if (row.requires_grad && row.role == Role::captured) tensor.requires_grad_();
      state.push_back(tensor);
    }
    cells.push_back(std::make_shared<Cell>(program, state, wide));
  }
  if (count > 1) stack = std::make_shared<Stack>(cells);
}

Callee World::eager() const {
  if (stack) return [stack = stack](Tensors given) { return stack->forward(std::move(given)); };
  return [cell = cells[0]](Tensors& given) { return cell->call(given); };
}

void World::before(const Call& call) {
  kept_.insert(kept_.end(), results_.begin(), results_.end());
  results_.clear();
  uint64_t seed = call.seed * 31 + 7;
  for (const auto& event : call.before) change(event, seed++);
}

void World::change(const Event& event, uint64_t seed) {
  const at::NoGradGuard guard;
  torch::nn::Module& root = stack ? static_cast<torch::nn::Module&>(*stack) : *cells[0];
  if (event.path == Path::train || event.path == Path::eval) {
    // All of the model, or one block of it.
    torch::nn::Module& some = event.which % 2 ? *cells[event.which / 2 % cells.size()] : root;
    return some.train(event.path == Path::train);
  }
  if (event.path == Path::write_result) {
    if (kept_.empty()) return;
    const auto& target = kept_[event.which % kept_.size()];
    if (at::has_internal_overlap(target) != at::MemOverlap::No ||
        (target.is_leaf() && target.requires_grad()))
      return;
    const Type type{target.sizes().vec(), target.scalar_type()};
    target.copy_(numbers(type, seed, Data::plain, program_.sort, wide_));
    return;
  }
  if (program_.states.empty()) return;
  if (event.path == Path::freeze || event.path == Path::thaw) {
    auto& tensor = state(event.which);
    if (tensor.is_leaf() && tensor.is_floating_point()) tensor.requires_grad_(event.path == Path::thaw);
    return;
  }
  give_values(event.path, event.which, seed);
}

void World::give_values(Path path, size_t which, uint64_t seed) {
  auto& slot = state(which);
  const auto& row = program_.states[which % states_];
  const auto values = numbers(row.type, seed, Data::plain, program_.sort, wide_);
  if (path == Path::slot && slot.is_leaf() && row.role == Role::parameter) {
    slot = values.clone().requires_grad_(slot.requires_grad());
  } else if (path == Path::set_data && slot.is_leaf()) {
    slot.set_data(laid_out(values, row.layout));
  } else if (path == Path::optimizer && slot.is_leaf() && slot.is_floating_point()) {
    slot.mutable_grad() = slot.detach() - values;
    torch::optim::SGD({slot}, torch::optim::SGDOptions(1.0)).step();
    slot.mutable_grad() = Tensor();
  } else if (path == Path::pointer && slot.is_contiguous() && !slot.is_neg() && !slot.is_conj()) {
    if (slot.nbytes()) std::memcpy(slot.data_ptr(), values.const_data_ptr(), slot.nbytes());
  } else if (path == Path::data_copy) {
    slot.data().copy_(values);
  } else {
    slot.copy_(values);
  }
}

Tensor World::argument(size_t i, const Call& call, const Tensors& made,
                       std::map<at::ScalarType, Tensor>& bases) {
  const auto& type = program_.arguments[i];
  const auto& source = call.sources[i];
  Tensor found;
  if (source.from == From::argument && source.which < i) found = made[source.which];
  if (source.from == From::result && !kept_.empty()) found = kept_[source.which % kept_.size()];
  const bool of_state =
      source.from == From::state || source.from == From::view_of_state || source.from == From::made_of_state;
  if (of_state && !program_.states.empty()) found = state(source.which);
  if (found.defined() && same_type(found, type, wide_)) {
    // In its own dtype: of flags the product would be whole numbers.
    if (source.from == From::made_of_state) return found.clone();
    return source.from == From::view_of_state ? found.detach() : found;
  }
  if (source.from == From::window) {
    int64_t longest = 1;
    for (const auto& t : program_.arguments)
      longest = std::max<int64_t>(longest, c10::multiply_integers(t.sizes));
    auto& base = bases[type.dtype];
    if (!base.defined())
      base = numbers({{2 * longest + 1}, type.dtype}, call.seed + 50, call.data, program_.sort, wide_);
    const auto length = c10::multiply_integers(type.sizes);
    const int64_t places[] = {0, length, length / 2, 1};
    return base.narrow(0, places[source.which % 4], length).view(type.sizes);
  }
  auto tensor = laid_out(numbers(type, call.seed + 60 + i, call.data, program_.sort, wide_), source.layout);
  if (source.bits == Bits::negated && (tensor.is_floating_point() || tensor.is_complex()))
    tensor = at::_neg_view(tensor);
  if (source.bits == Bits::conjugated) tensor = tensor.conj();
  if (source.gradient == Gradient::none || !tensor.is_floating_point()) return tensor;
  const auto leaf = tensor.detach().requires_grad_();
  new_leaves_.push_back(leaf);
  return source.gradient == Gradient::inner ? leaf.mul(1) : leaf;
}

Tensors World::make_arguments(const Call& call) {
  new_leaves_.clear();
  std::map<at::ScalarType, Tensor> bases;
  Tensors made;
  for (size_t i = 0; i < program_.arguments.size(); ++i) made.push_back(argument(i, call, made, bases));
  made.push_back(at::tensor({1, 0, 1}, at::kLong));
  return made;
}

void World::call(const Call& call, const Callee& callee) {
  gradients_.clear();
  in_backward_ = false;
  given_ = make_arguments(call);
  for (const auto& cell : cells) cell->host = call.host;
  at::manual_seed(call.seed);
  {
    const torch::AutoGradMode mode(call.grad_mode);
    results_ = callee(given_);
  }
  generator_state = at::detail::getDefaultCPUGenerator().get_state();
  in_backward_ = true;
  if (call.grad_mode && call.backward != Backward::none) differentiate(call);
  in_backward_ = false;
}

Tensors World::leaves() const {
  auto all = new_leaves_;
  for (const auto& cell : cells)
    for (size_t i = 0; i < program_.states.size(); ++i)
      if (const auto& tensor = cell->slot(i); tensor.is_leaf() && tensor.requires_grad())
        all.push_back(tensor);
  return all;
}

void World::differentiate(const Call& call) {
  Tensors outputs, first, second;
  for (size_t i = 0; i < results_.size(); ++i) {
    const auto& result = results_[i];
    if (!result.requires_grad() || !result.is_floating_point() || call.left_out == i + 1) continue;
    outputs.push_back(result);
    first.push_back(at::ones(result.sizes(), result.options()));
    second.push_back(at::full(result.sizes(), 2, result.options()));
  }
  const auto of = leaves();
  if (outputs.empty() || of.empty()) return;
  if (call.backward == Backward::accumulate) {
    torch::autograd::backward(outputs, first, program_.retain_graph);
    for (const auto& leaf : of) gradients_.push_back(leaf.grad().defined() ? leaf.grad().clone() : Tensor());
    return;
  }
  for (size_t i = 0; call.backward == Backward::each && i < outputs.size(); ++i) {
    const auto found =
        torch::autograd::grad({outputs[i]}, of, {first[i]}, program_.retain_graph, false, true);
    gradients_.insert(gradients_.end(), found.begin(), found.end());
  }
  if (call.backward == Backward::each) return;
  const bool twice = call.backward == Backward::twice;
  gradients_ = torch::autograd::grad(outputs, of, first, twice || program_.retain_graph, false, true);
  if (!twice) return;
  const auto more = torch::autograd::grad(outputs, of, second, program_.retain_graph, false, true);
  gradients_.insert(gradients_.end(), more.begin(), more.end());
}

std::vector<Seen> World::seen() const {
  std::vector<Seen> all;
  const auto add = [&](Seen::Sort sort, const char* name, const Tensors& tensors) {
    for (size_t i = 0; i < tensors.size(); ++i) all.push_back({name + std::to_string(i), tensors[i], sort});
  };
  add(Seen::result, "result ", results_);
  add(Seen::argument, "argument ", given_);
  for (size_t c = 0; c < cells.size(); ++c)
    for (size_t i = 0; i < program_.states.size(); ++i)
      all.push_back({"state " + std::to_string(c * states_ + i), cells[c]->slot(i), Seen::state});
  add(Seen::kept, "earlier result ", kept_);
  add(Seen::gradient, "gradient ", gradients_);
  return all;
}

}  // namespace graft::stateful
