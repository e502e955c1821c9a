// Regional compilation: a graph cut where one repeated block of the model ends and the next begins. Blocks
// that do the same are compiled once, and the program runs block by block.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "ir/graph.h"
#include "runtime/executable.h"

namespace graft {

/// One stretch of a graph. Its inputs and results are numbers of values of the whole, and so is all it makes.
struct Region {
  ir::Graph graph;
  std::vector<size_t> inputs, results;
  std::vector<size_t> made = {};
};

struct Regions {
  std::vector<Region> regions;  ///< in order
  size_t values = 0;            ///< of the whole graph: its inputs come first
  std::vector<size_t> results;  ///< of the whole graph
  static constexpr size_t none = ~size_t{0};
};

/// A node belongs to the block that its scope names ("model.layers.3", up to the first number), or to the one
/// before it if its scope names none. A few of another block amid a block's are its own.
Regions cut_into_regions(const ir::Graph& graph);

/// By region, in numbers of its own inputs and results: what it may write in place, because no region after
/// it reads that input, nor any region from it on a view that was made before it.
std::vector<std::vector<InPlace>> in_place_by_region(const ir::Graph& graph, const Regions& cut,
                                                     const std::vector<InPlace>& in_place);

/// An executable over all regions, made of one executable for each different region.
using BuildRegion = std::function<std::unique_ptr<Executable>(ir::Graph, std::vector<InPlace>)>;
std::unique_ptr<Executable> build_regions(const ir::Graph& graph, const std::vector<InPlace>& in_place,
                                          const BuildRegion& build);

}  // namespace graft
