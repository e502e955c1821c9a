#include "runtime/regional_executable.h"

#include <algorithm>
#include <map>
#include <optional>
#include <unordered_map>
#include <unordered_set>

#include "ir/clone.h"
#include "ir/op_traits.h"
#include "plan/failures.h"
#include "runtime/residency_scope.h"
#include "support/block_path.h"

namespace graft {
namespace {

struct Stretch {
  std::string block;
  std::vector<const ir::Node*> nodes;
};

std::vector<Stretch> stretches_of(const ir::Graph& graph) {
  std::vector<Stretch> stretches(1);
  for (const auto& node : graph.nodes()) {
    const auto block = block_of(node->scope());
    if (!block.empty() && block != stretches.back().block) {
      if (stretches.back().nodes.empty())
        stretches.back().block = block;
      else
        stretches.push_back({block, {}});
    }
    stretches.back().nodes.push_back(node.get());
  }
  return stretches;
}

/// A few nodes of another block amid a block's (what its backward pass computes again, of the block before
/// it) are its own: a cut on both sides of them would make memory of much that kernels compute in passing.
std::vector<Stretch> without_islands(std::vector<Stretch> stretches) {
  std::vector<Stretch> joined;
  for (auto& stretch : stretches) {
    joined.push_back(std::move(stretch));
    while (joined.size() >= 3) {
      auto& last = joined.back();
      auto& island = joined[joined.size() - 2];
      auto& first = joined[joined.size() - 3];
      if (first.block != last.block || island.nodes.size() >= first.nodes.size() + last.nodes.size()) break;
      for (auto* part : {&island, &last})
        first.nodes.insert(first.nodes.end(), part->nodes.begin(), part->nodes.end());
      joined.resize(joined.size() - 2);
    }
  }
  return joined;
}

std::unordered_map<const ir::Value*, size_t> numbers_of(const ir::Graph& graph) {
  std::unordered_map<const ir::Value*, size_t> numbers;
  for (const auto& input : graph.inputs()) numbers.emplace(input.get(), numbers.size());
  for (const auto& node : graph.nodes())
    for (const auto& output : node->outputs()) numbers.emplace(output.get(), numbers.size());
  return numbers;
}

class RegionalExecutable : public Executable {
 public:
  RegionalExecutable(Regions cut, std::vector<std::shared_ptr<Executable>> parts, int64_t different)
      : cut_(std::move(cut)), parts_(std::move(parts)), different_(different) {
    // A value goes when the last region that reads it is done.
    last_.assign(cut_.values, 0);
    for (size_t r = 0; r < cut_.regions.size(); ++r)
      for (const size_t value : cut_.regions[r].inputs) last_[value] = r;
    for (const size_t value : cut_.results)
      if (value != Regions::none) last_[value] = cut_.regions.size();
  }

  std::vector<at::Tensor> run(std::vector<at::Tensor> inputs, bool in_place) override {
    std::vector<at::Tensor> table(cut_.values);
    std::move(inputs.begin(), inputs.end(), table.begin());
    for (size_t r = 0; r < cut_.regions.size(); ++r) {
      const auto& region = cut_.regions[r];
      std::vector<at::Tensor> taken;
      taken.reserve(region.inputs.size());
      for (const size_t value : region.inputs) {
        taken.push_back(table[value]);
        if (last_[value] == r) table[value].reset();
      }
      const runtime::ResidencyScope weights(taken);
      auto made = parts_[r]->run(std::move(taken), in_place);
      for (size_t i = 0; i < made.size(); ++i) table[region.results[i]] = std::move(made[i]);
    }
    std::vector<at::Tensor> results;
    results.reserve(cut_.results.size());
    for (const size_t value : cut_.results)
      results.push_back(value == Regions::none ? at::Tensor() : table[value]);
    return results;
  }

  int64_t kernels() const override {
    return sum([](const Executable& e) { return e.kernels(); });
  }
  int64_t extern_calls() const override {
    int64_t calls = 0;
    for (const auto& part : parts_) calls += part->extern_calls();
    return calls;
  }
  int64_t cache_hits() const override {
    return sum([](const Executable& e) { return e.cache_hits(); });
  }
  std::string describe() const override {
    std::string text =
        std::to_string(parts_.size()) + " regions, " + std::to_string(different_) + " different";
    std::unordered_set<const Executable*> seen;
    for (const auto& part : parts_)
      if (seen.insert(part.get()).second) text += "\n  " + part->describe();
    return text;
  }

 private:
  int64_t sum(int64_t (*of)(const Executable&)) const {
    std::unordered_set<const Executable*> seen;
    int64_t total = 0;
    for (const auto& part : parts_)
      if (seen.insert(part.get()).second) total += of(*part);
    return total;
  }

  Regions cut_;
  std::vector<std::shared_ptr<Executable>> parts_;
  std::vector<size_t> last_;
  int64_t different_;
};

}  // namespace

Regions cut_into_regions(const ir::Graph& graph) {
  Regions cut;
  const auto numbers = numbers_of(graph);
  cut.values = numbers.size();
  const std::unordered_set<const ir::Value*> results(graph.results().begin(), graph.results().end());
  for (const auto& stretch : without_islands(stretches_of(graph))) {
    Region region;
    ir::ValueMap map;
    const std::unordered_set<const ir::Node*> inside(stretch.nodes.begin(), stretch.nodes.end());
    for (const auto* node : stretch.nodes) {
      for (const auto* value : node->inputs()) {
        if (map.contains(value)) continue;
        // No names, and no scopes: two regions are the same whatever their parameters are called.
        map[value] = &region.graph.add_input("", value->type());
        region.inputs.push_back(numbers.at(value));
      }
      ir::copy_node(*node, region.graph, map).set_scope("");
    }
    for (const auto* node : stretch.nodes)
      for (const auto& output : node->outputs()) {
        region.made.push_back(numbers.at(output.get()));
        const bool leaves = results.contains(output.get()) ||
                            std::any_of(output->users().begin(), output->users().end(),
                                        [&](const ir::Node* user) { return !inside.contains(user); });
        if (!leaves) continue;
        region.graph.add_result(map.at(output.get()));
        region.results.push_back(numbers.at(output.get()));
      }
    if (!stretch.nodes.empty()) cut.regions.push_back(std::move(region));
  }
  for (const auto* result : graph.results())
    cut.results.push_back(result ? numbers.at(result) : Regions::none);
  return cut;
}

namespace {

/// The value and all that sees its memory.
std::vector<const ir::Value*> views_of(const ir::Value& value) {
  std::vector<const ir::Value*> found{&value};
  for (size_t i = 0; i < found.size(); ++i)
    for (const auto* user : found[i]->users())
      if (ir::kind_of(user->op()) == ir::OpKind::view)
        for (const auto& output : user->outputs()) found.push_back(output.get());
  return found;
}

std::optional<size_t> place_in(const std::vector<size_t>& list, size_t value) {
  const auto found = std::find(list.begin(), list.end(), value);
  if (found == list.end()) return std::nullopt;
  return static_cast<size_t>(found - list.begin());
}

}  // namespace

namespace {

/// The first region from which on no other can fail by its data: one that fails must find all inputs as they
/// were. What a region does in itself it plans by itself.
size_t first_safe_region(const ir::Graph& graph, const Regions& cut) {
  plan::Failures failures;
  std::unordered_set<size_t> failing;  // values that a node makes that can fail
  const auto numbers = numbers_of(graph);
  for (const auto& node : graph.nodes())
    if (failures.next(*node))
      failing.insert(node->outputs().empty() ? Regions::none : numbers.at(node->outputs()[0].get()));
  if (failing.contains(Regions::none)) return cut.regions.size();
  size_t safe = 0;
  for (size_t r = 0; r < cut.regions.size(); ++r)
    if (std::any_of(cut.regions[r].made.begin(), cut.regions[r].made.end(),
                    [&](size_t value) { return failing.contains(value); }))
      safe = r;
  return safe;
}

/// Whether the caller gets the result's memory besides, or the input's.
bool is_given_otherwise(const ir::Graph& graph, const ir::Value& result, const ir::Value& input) {
  const auto views = views_of(input);
  const auto own = views_of(result);
  return std::count(graph.results().begin(), graph.results().end(), &result) != 1 ||
         std::any_of(views.begin(), views.end(), [&](const auto* view) { return graph.is_result(*view); }) ||
         std::any_of(own.begin() + 1, own.end(), [&](const auto* view) { return graph.is_result(*view); });
}

}  // namespace

std::vector<std::vector<InPlace>> in_place_by_region(const ir::Graph& graph, const Regions& cut,
                                                     const std::vector<InPlace>& in_place) {
  const auto numbers = numbers_of(graph);
  std::vector<std::vector<size_t>> readers(cut.values);  // regions, in order
  for (size_t r = 0; r < cut.regions.size(); ++r)
    for (const size_t value : cut.regions[r].inputs) readers[value].push_back(r);
  std::vector<std::vector<InPlace>> found(cut.regions.size());
  const size_t safe = first_safe_region(graph, cut);
  for (const auto& pair : in_place) {
    const auto& input = *graph.inputs()[pair.input];
    const auto made = cut.results[pair.result];
    if (made == Regions::none || is_given_otherwise(graph, *graph.results()[pair.result], input)) continue;
    for (size_t r = safe; r < cut.regions.size(); ++r) {
      const auto result = place_in(cut.regions[r].results, made);
      const auto taken = place_in(cut.regions[r].inputs, numbers.at(&input));
      if (!result || !taken) continue;
      const auto views = views_of(input);
      const bool is_free = std::all_of(views.begin(), views.end(), [&](const ir::Value* view) {
        const auto& by = readers[numbers.at(view)];
        return by.empty() || by.back() < r || (by.back() == r && view == &input);
      });
      if (is_free) found[r].push_back({*result, *taken});
    }
  }
  return found;
}

std::unique_ptr<Executable> build_regions(const ir::Graph& graph, const std::vector<InPlace>& in_place,
                                          const BuildRegion& build) {
  auto cut = cut_into_regions(graph);
  const auto pairs = in_place_by_region(graph, cut, in_place);
  std::map<std::string, std::shared_ptr<Executable>> known;
  std::vector<std::shared_ptr<Executable>> parts;
  parts.reserve(cut.regions.size());
  for (size_t r = 0; r < cut.regions.size(); ++r) {
    const auto& region = cut.regions[r].graph;
    auto text = ir::to_string(region);
    for (const auto& [result, input] : pairs[r])
      text += std::to_string(result) + " in place of " + std::to_string(input) + "\n";
    auto& made = known[text];
    if (!made) made = build(ir::clone(region), pairs[r]);
    parts.push_back(made);
  }
  const auto different = static_cast<int64_t>(known.size());
  return std::make_unique<RegionalExecutable>(std::move(cut), std::move(parts), different);
}

}  // namespace graft
