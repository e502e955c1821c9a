#include <gtest/gtest.h>

#include "ir/clone.h"
#include "ir/parser.h"
#include "ir/verifier.h"

namespace graft::ir {
namespace {

constexpr auto kSource = R"(graph(%0 "x": f32[2, 3],
      %1 "y": f32[3, 2]{1, 3},
      %2 "i": i64[2]) {
  %3: f32[2, 3], %4: i64[2] = t::two(self=%0, flag=true)  # model.layers.3
  %5: f32[2, 3] = t::list(parts=tensors[None, %3, %0, None, %3], at=tensors[], dim=[1, 2])
  t::nothing(self=%4, s="text", w='word, none=None, undefined=Undefined)
  return (%5, None, %3)
}
)";

/// A graph with the other one's inputs, and nothing in it.
Graph with_inputs_of(const Graph& graph, ValueMap& map) {
  Graph made;
  for (const auto& input : graph.inputs())
    map[input.get()] = &made.add_input(graph.input_name(input->index()), input->type());
  return made;
}

const Node& node_at(const Graph& graph, size_t i) { return **std::next(graph.nodes().begin(), i); }

TEST(CopyNode, EveryNodeMakesTheSameGraph) {
  const auto source = parse(kSource);
  ValueMap map;
  auto copy = with_inputs_of(source, map);
  for (const auto& node : source.nodes()) copy_node(*node, copy, map);
  for (const auto* result : source.results()) copy.add_result(result ? map.at(result) : nullptr);
  ir::verify(copy);
  EXPECT_EQ(to_string(copy), kSource);
  ir::verify(source);  // nobody there has a user in the other graph
  EXPECT_EQ(to_string(source), kSource);
}

TEST(CopyNode, AllOutputsAreEnteredAndTheScopeIsKept) {
  const auto source = parse(kSource);
  ValueMap map;
  auto copy = with_inputs_of(source, map);
  const auto& two = node_at(source, 0);
  auto& twin = copy_node(two, copy, map);
  EXPECT_EQ(twin.scope(), "model.layers.3");
  EXPECT_EQ(map.at(&two.output(0)), &twin.output(0));
  EXPECT_EQ(map.at(&two.output(1)), &twin.output(1));
  EXPECT_EQ(twin.output(1).type(), two.output(1).type());
  EXPECT_EQ(copy.inputs()[0]->users(), std::vector<Node*>{&twin});
}

TEST(CopyNode, NullsInAListStay) {
  const auto source = parse(kSource);
  ValueMap map;
  auto copy = with_inputs_of(source, map);
  const auto& first = copy_node(node_at(source, 0), copy, map);
  const auto& second = copy_node(node_at(source, 1), copy, map);
  auto* x = copy.inputs()[0].get();
  EXPECT_EQ(std::get<ValueList>(*second.argument("parts")),
            (ValueList{nullptr, &first.output(), x, nullptr, &first.output()}));
  EXPECT_TRUE(std::get<ValueList>(*second.argument("at")).empty());
  EXPECT_EQ(first.output().users().size(), 2u);
}

TEST(CopyNode, AnotherValueMayStandForAnArgument) {
  const auto source = parse(kSource);
  ValueMap map;
  auto copy = with_inputs_of(source, map);
  auto& other = copy.add_input("other", source.inputs()[0]->type());
  map[source.inputs()[0].get()] = &other;
  EXPECT_EQ(copy_node(node_at(source, 0), copy, map).inputs(), std::vector<Value*>{&other});
}

TEST(CopyNode, WhatIsKnownOfItsOutputsStays) {
  const auto source = parse(kSource);
  ValueMap map;
  auto copy = with_inputs_of(source, map);
  const auto& two = node_at(source, 0);
  auto& known = copy.add_input("known", two.output(0).type());
  map[&two.output(0)] = &known;
  const auto& twin = copy_node(two, copy, map);
  EXPECT_EQ(map.at(&two.output(0)), &known);
  EXPECT_EQ(map.at(&two.output(1)), &twin.output(1));
}

TEST(CopyNode, ArgumentsAndTypesMayDiffer) {
  const auto source = parse(kSource);
  ValueMap map;
  auto copy = with_inputs_of(source, map);
  const auto& two = node_at(source, 0);
  auto arguments = mapped_arguments(two, map);
  arguments.push_back({"dtype", Attribute(DType::f64)});
  auto types = types_of(two);
  types[0].dtype = DType::f64;
  const auto& twin = copy_node(two, std::move(arguments), std::move(types), copy, map);
  ir::verify(copy);
  EXPECT_EQ(to_string(twin),
            "%3: f64[2, 3], %4: i64[2] = t::two(self=%0, flag=true, dtype=f64)  # model.layers.3");
  EXPECT_EQ(map.at(&two.output(0)), &twin.output(0));
}

TEST(CopyNode, no_copy_over_a_value_that_is_not_in_the_map) {
  const auto source = parse(kSource);
  ValueMap map;
  auto copy = with_inputs_of(source, map);
  EXPECT_THROW(copy_node(node_at(source, 1), copy, map), std::out_of_range);
  EXPECT_TRUE(copy.nodes().empty());
  ir::verify(copy);
}

}  // namespace
}  // namespace graft::ir
