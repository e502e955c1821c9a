#include "models/sources.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "graft/error.h"
#include "support/log.h"

namespace graft {
namespace {

constexpr size_t kListed = 8;  // how many names an error spells out
// How large a head may be that a checkpoint does not have: so many weights, of so many numbers.
constexpr size_t kFreshWeights = 64;
constexpr double kFreshNumbers = 1 << 28;

std::string shown(const std::vector<std::string>& names) {
  std::string text;
  for (size_t i = 0; i < std::min(names.size(), kListed); ++i) text += (i ? ", " : "") + names[i];
  if (names.size() > kListed) text += ", and " + std::to_string(names.size() - kListed) + " more";
  return text;
}

std::string shape_text(at::IntArrayRef shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) text += (i ? ", " : "") + std::to_string(shape[i]);
  return text + "]";
}

std::string replaced_ending(const std::string& name, std::string_view from, std::string_view to) {
  return name.ends_with(from) ? name.substr(0, name.size() - from.size()) + std::string(to) : name;
}

at::Tensor sinusoids(int64_t positions, int64_t width) {
  const auto column = at::arange(width, at::kDouble);
  const auto pair = at::div(column, 2, "floor") * 2;
  const auto angle =
      at::arange(positions, at::kDouble).unsqueeze(1) / at::pow(10000.0, pair / static_cast<double>(width));
  return at::where(at::remainder(column, 2).eq(0), angle.sin(), angle.cos());
}

at::ScalarType dtype_of(const Architecture& architecture, const std::string& path, at::ScalarType wanted) {
  if (wanted != at::kHalf) return wanted;
  const auto kept = [&](std::string_view layer) {
    return with_fragment(path, std::string(layer), std::string(layer)).has_value();
  };
  const auto& list = architecture.keep_in_fp32;
  return std::any_of(list.begin(), list.end(), kept) ? at::kFloat : wanted;
}

/// One of the weights that files hold as one.
struct Joined {
  std::string whole;     ///< the path with the file's fragment in it
  int64_t place, count;  ///< which of how many, from the top
};

std::optional<Joined> joined_at(const Architecture& architecture, const std::string& path) {
  for (const auto& [fragments, file] : architecture.stored_joined)
    for (size_t i = 0; i < fragments.size(); ++i)
      if (auto whole = with_fragment(path, fragments[i], file))
        return Joined{*whole, static_cast<int64_t>(i), static_cast<int64_t>(fragments.size())};
  return {};
}

}  // namespace

NamedTensors stored_tensors(const Architecture& architecture, const NamedTensors& own) {
  NamedTensors stored;
  stored.reserve(own.size());
  std::map<std::string, std::vector<at::Tensor>> parts;
  std::map<std::string, size_t> places;
  for (const auto& [path, tensor] : own) {
    const auto joined = joined_at(architecture, path);
    const auto name = stored_name(architecture, joined ? joined->whole : path);
    if (!joined || places.try_emplace(name, stored.size()).second) stored.emplace_back(name, tensor);
    if (!joined) continue;
    auto& all = parts[name];
    all.resize(static_cast<size_t>(joined->count));
    all[static_cast<size_t>(joined->place)] = tensor;
  }
  for (const auto& [name, all] : parts) stored[places[name]].second = at::cat(all, 0);
  return stored;
}

at::Tensor tensor_at(const Architecture& architecture, const Checkpoint& checkpoint,
                     const std::string& path) {
  const auto joined = joined_at(architecture, path);
  if (!joined) return checkpoint.tensor(stored_name(architecture, path));
  return checkpoint.tensor(stored_name(architecture, joined->whole)).chunk(joined->count, 0)[joined->place];
}

at::Tensor RandomSource::parameter(const std::string& path, at::IntArrayRef shape, const nn::Init& init) {
  using Kind = nn::Init::Kind;
  at::NoGradGuard no_grad;
  // Drawn in float32 and rounded, so that a seed gives the same model in every dtype.
  auto value = at::empty(shape, at::kFloat);
  switch (init.kind) {
    case Kind::normal:
      value.normal_(0, init.std);
      break;
    case Kind::zeros:
      value.zero_();
      break;
    case Kind::ones:
      value.fill_(1);
      break;
    case Kind::constant:
      value.fill_(init.std);
      break;
    case Kind::sinusoidal:
      value.copy_(sinusoids(shape[0], shape[1]));
      break;
    case Kind::uniform:
      value.uniform_(-init.std, init.std);
      break;
    case Kind::kaiming_fan_out: {
      // He et al. 2015, for a ReLU after it: variance 2 / (outputs * kernel area).
      const int64_t area = shape.size() > 2 ? shape[2] * shape[3] : 1;
      value.normal_(0, std::sqrt(2.0 / static_cast<double>(shape[0] * area)));
      break;
    }
  }
  if (init.zero_row >= 0) value[init.zero_row].zero_();
  return value.to(options_.dtype(dtype_of(architecture_, path, options_.dtype().toScalarType())));
}

at::Tensor RandomSource::buffer(const std::string&, at::IntArrayRef shape, at::ScalarType dtype,
                                double fill) {
  return at::full(shape, fill, options_.dtype(dtype));
}

CheckpointSource::CheckpointSource(const Weights& checkpoint, const Architecture& architecture, Wanted wanted)
    : checkpoint_(checkpoint),
      architecture_(architecture),
      wanted_(std::move(wanted)),
      fresh_(architecture, wanted_.options) {
  const std::string prefix = std::string(architecture.base_prefix) + ".";
  const auto& names = checkpoint.names();
  checkpoint_has_prefix_ =
      std::any_of(names.begin(), names.end(), [&](const auto& n) { return n.starts_with(prefix); });
}

std::string CheckpointSource::locate(const std::string& path) const {
  const std::string prefix = std::string(architecture_.base_prefix) + ".";
  std::vector<std::string> candidates;
  for (const auto& name : {path, stored_name(architecture_, path)}) {
    candidates.push_back(name);
    if (architecture_.task == Task::base) {
      if (checkpoint_has_prefix_) candidates.push_back(prefix + name);
    } else if (!checkpoint_has_prefix_ && name.starts_with(prefix)) {
      candidates.push_back(name.substr(prefix.size()));
    }
  }
  for (const auto& name : candidates) {
    // TensorFlow's names of LayerNorm parameters, still found in old BERT checkpoints.
    for (const auto& spelled : {name, replaced_ending(name, "LayerNorm.weight", "LayerNorm.gamma"),
                                replaced_ending(name, "LayerNorm.bias", "LayerNorm.beta")})
      if (checkpoint_.contains(spelled)) return spelled;
  }
  return {};
}

at::Tensor CheckpointSource::take(const std::string& name, at::IntArrayRef shape,
                                  std::optional<at::ScalarType> dtype) {
  taken_.insert(name);
  auto tensor = checkpoint_.tensor(name);
  if (tensor.sizes() != shape) {
    misshapen_.push_back(name + " is " + shape_text(tensor.sizes()) + " and should be " + shape_text(shape));
    return stand_in(shape, dtype.value_or(tensor.scalar_type()));
  }
  return entered(tensor, dtype.value_or(tensor.scalar_type()));
}

at::Tensor CheckpointSource::entered(const at::Tensor& tensor, at::ScalarType dtype) {
  done_bytes_ += static_cast<int64_t>(tensor.nbytes());
  if (wanted_.progress) wanted_.progress(done_bytes_, static_cast<int64_t>(checkpoint_.total_bytes()));
  return tensor.to(wanted_.options.dtype(dtype));
}

at::Tensor CheckpointSource::take_joined(const std::string& path, at::IntArrayRef shape,
                                         at::ScalarType dtype) {
  const auto joined = joined_at(architecture_, path);
  const auto name = joined ? locate(joined->whole) : std::string();
  if (name.empty()) return {};
  taken_.insert(name);
  const auto tensor = checkpoint_.tensor(name);
  auto expected = shape.vec();
  expected[0] *= joined->count;
  if (tensor.sizes() != expected) {
    misshapen_.push_back(name + " is " + shape_text(tensor.sizes()) + " and should be " +
                         shape_text(expected));
    return stand_in(shape, dtype);
  }
  return entered(tensor.narrow(0, joined->place * shape[0], shape[0]), dtype);
}

at::Tensor CheckpointSource::parameter(const std::string& path, at::IntArrayRef shape, const nn::Init& init) {
  auto name = locate(path);
  if (name.empty() && wanted_.ties) {
    // A checkpoint may hold a tied pair under either name.
    for (const auto& [tied, source] : architecture_.tied)
      if (source == path) name = locate(tied);
  }
  const auto dtype = dtype_of(architecture_, path, wanted_.options.dtype().toScalarType());
  if (!name.empty()) return take(name, shape, dtype);
  if (auto part = take_joined(path, shape, dtype); part.defined()) return part;
  missing_.push_back(path);
  auto placeholder = stand_in(shape, dtype);
  return wanted_.initialise_missing ? fresh_.parameter(path, shape, init) : placeholder;
}

at::Tensor CheckpointSource::stand_in(at::IntArrayRef shape, at::ScalarType dtype) const {
  // A weight that has more numbers than the checkpoint has bits.
  double numbers = 1;
  for (const auto size : shape) numbers *= static_cast<double>(size);
  const bool beyond = numbers > 8.0 * static_cast<double>(checkpoint_.total_bytes()) + kFreshNumbers ||
                      std::any_of(shape.begin(), shape.end(), [](int64_t size) { return size < 0; });
  if (beyond || missing_.size() + misshapen_.size() > checkpoint_.names().size() + kFreshWeights) {
    finish();
    throw FormatError("[models] " + std::string(architecture_.name) + ": " + missing_.back() + " would be " +
                      shape_text(shape) + ", more than a checkpoint of " +
                      std::to_string(checkpoint_.total_bytes()) + " bytes has to go with it");
  }
  return at::zeros({}, wanted_.options.dtype(dtype)).expand(shape);
}

at::Tensor CheckpointSource::buffer(const std::string& path, at::IntArrayRef shape, at::ScalarType dtype,
                                    double fill) {
  const auto name = locate(path);
  // A counter that old checkpoints lack changes nothing that is computed.
  if (name.empty()) {
    if (at::isFloatingType(dtype)) missing_.push_back(path);
    return fresh_.buffer(path, shape, dtype, fill);
  }
  return take(name, shape, dtype);
}

at::Tensor CheckpointSource::tied(const std::string& path, const at::Tensor& shared) {
  const auto name = locate(path);
  if (name.empty() || taken_.contains(name)) return shared;
  auto own = take(name, shared.sizes(), shared.scalar_type());
  if (at::equal(own, shared)) return shared;
  log_warning("[models] the config ties " + path +
              " to the embedding, but the checkpoint holds another value for it: kept apart");
  return own;
}

bool CheckpointSource::may_be_left(const std::string& name) const {
  const auto ends = [&](std::string_view ending) { return name.ends_with(ending); };
  if (std::any_of(architecture_.obsolete.begin(), architecture_.obsolete.end(), ends)) return true;
  const auto starts = [&](std::string_view beginning) { return name.starts_with(beginning); };
  if (std::any_of(architecture_.without.begin(), architecture_.without.end(), starts)) return true;
  const std::string prefix = std::string(architecture_.base_prefix) + ".";
  // The body is all that was asked for: a head is not its business. And another head's weights, beside the
  // body's, are not a head's.
  return checkpoint_has_prefix_ && !name.starts_with(prefix);
}

void CheckpointSource::finish() const {
  const std::string who = "[models] " + std::string(architecture_.name) + ": ";
  if (!misshapen_.empty())
    throw FormatError(who + "the checkpoint does not fit config.json: " + shown(misshapen_));
  if (!missing_.empty() && !wanted_.initialise_missing)
    throw FormatError(who + std::to_string(missing_.size()) +
                      " weights are not in the checkpoint: " + shown(missing_));
  if (!missing_.empty()) log_warning(who + "made fresh, not in the checkpoint: " + shown(missing_));
  std::vector<std::string> unused, left;
  for (const auto& name : checkpoint_.names())
    if (!taken_.contains(name)) (may_be_left(name) ? left : unused).push_back(name);
  if (!unused.empty())
    throw FormatError(who + std::to_string(unused.size()) +
                      " tensors of the checkpoint have no place in this model: " + shown(unused));
  std::erase_if(left, [&](const std::string& name) {
    return std::any_of(architecture_.obsolete.begin(), architecture_.obsolete.end(),
                       [&](auto e) { return name.ends_with(e); });
  });
  if (!left.empty()) log_warning(who + "left out, of another head: " + shown(left));
}

}  // namespace graft
