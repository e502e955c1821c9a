#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "graft/error.h"
#include "ir/parser.h"
#include "ir/verifier.h"

namespace graft::ir {
namespace {

constexpr auto kEverything = R"(graph(%0 "x": f32[2, 3],
      %1 "model.w \"q\"\\": bf16[3, 2]{1, 3}@cuda:1,
      %7 "empty": i64[0, 4]) {
  %2: f32[2, 3] = aten::mul.Tensor(self=%0, other=%0)  # model.layers.3.mlp
  %3: f32[], %4: bool[2] = test::two(a=%2, b=tensors[%0, None, %2], c=None, d=Undefined)
  test::nothing(i=-3, f=1.5, g=-inf, h=nan, c=complex(1.5, -inf), e=1e-20, one=1.0, s="a\nb", w='strided, t=bf16, dev=@cuda:0, cpu=@cpu, yes=true)
  %5: f32[1] = test::lists(i=[1, -2], n=[], f=[1.0, 2.5], ff=f64[], b=[true, false], bb=bool[])
  return (%3, None, %5, %3)
}
)";

TEST(Ir, TextRoundTrips) {
  const auto graph = parse(kEverything);
  ir::verify(graph);
  EXPECT_EQ(to_string(graph), kEverything);
  EXPECT_EQ(to_string(parse(to_string(graph))), kEverything);
}

TEST(Ir, ParserKeepsKindsApart) {
  const auto graph =
      parse("graph() {\n  t::o(a=1, b=1.0, c=[1], d=[1.0], e=\"1\", f='one)\n  return ()\n}\n");
  const auto& node = *graph.nodes().front();
  const auto attribute = [&](const char* name) { return std::get<Attribute>(*node.argument(name)); };
  EXPECT_EQ(attribute("a"), Attribute(int64_t{1}));
  EXPECT_EQ(attribute("b"), Attribute(1.0));
  EXPECT_EQ(attribute("c"), Attribute(std::vector<int64_t>{1}));
  EXPECT_EQ(attribute("d"), Attribute(std::vector<double>{1.0}));
  EXPECT_EQ(attribute("e"), Attribute(std::string("1")));
  EXPECT_EQ(attribute("f"), Attribute(Symbol{"one"}));
  EXPECT_EQ(node.argument("g"), nullptr);
}

TEST(Ir, ParserSaysWhereAndWhy) {
  const std::pair<const char*, const char*> bad[] = {
      {"", "line 1, column 1"},
      {"graph() {\n  return (%3)\n}", "line 2, column 11: a value that is not defined"},
      {"graph(%0 \"x\": f32[1], %0 \"y\": f32[1]) { return () }", "%0 is defined twice"},
      {"graph(%0 \"x\": f33[1]) { return () }", "unknown dtype"},
      {"graph(%0 \"x\": f32[1]@gpu) { return () }", "unknown device"},
      {"graph(%0 \"x\": f32[2, 2]{1}) { return () }", "as many strides"},
      {"graph(%0 \"x\": f32[-1]) { return () }", "sizes that no tensor has"},
      {"graph(%0 \"x\": f32[4611686018427387904, 4]) { return () }", "sizes that no tensor has"},
      {"graph() { mul(a=1) return () }", "NAMESPACE::NAME"},
      {"graph() { t::o(a=1, a=2) return () }", "\"a\" twice"},
      {"graph() { t::o(a=[1, 1.5]) return () }", "integers and floats"},
      {"graph() { t::o(a=\"x) return () }", "does not end"},
      {"graph() { t::o(a=99999999999999999999) return () }", "expected a number"},
      {"graph() { return () } x", "after the graph"},
  };
  for (const auto& [text, message] : bad) {
    try {
      parse(text);
      ADD_FAILURE() << "accepted: " << text;
    } catch (const FormatError& error) {
      EXPECT_NE(std::string(error.what()).find(message), std::string::npos)
          << error.what() << "\nfor " << text;
    }
  }
}

TEST(Ir, ReplacingAndErasingKeepUsersRight) {
  auto graph = parse(R"(graph(%0 "x": f32[2]) {
  %1: f32[2] = t::a(self=%0)
  %2: f32[2] = t::b(l=tensors[%1, %1], self=%0)
  return (%2, %1)
}
)");
  Node& first = *graph.nodes().front();
  EXPECT_THROW(graph.erase(first), std::logic_error);
  EXPECT_EQ(first.output().users().size(), 2u);
  graph.replace_uses(first.output(), *graph.inputs()[0]);
  ir::verify(graph);
  graph.erase(first);
  ir::verify(graph);
  EXPECT_EQ(to_string(graph), R"(graph(%0 "x": f32[2]) {
  %2: f32[2] = t::b(l=tensors[%0, %0], self=%0)
  return (%2, %0)
}
)");
}

TEST(Ir, NodesGoWhereTheyAreAsked) {
  auto graph = parse("graph(%0 \"x\": f32[2]) {\n  %1: f32[2] = t::b(self=%0)\n  return (%1)\n}\n");
  Node& last = *graph.nodes().front();
  auto& made =
      graph.add_node("t::a", {{"self", graph.inputs()[0].get()}}, {contiguous(DType::f32, {2})}, &last);
  graph.set_argument(last, 0, &made.output());
  ir::verify(graph);
  EXPECT_EQ(graph.nodes().front()->op(), "t::a");
}

TEST(Ir, VerifierSeesUseBeforeDefinition) {
  auto graph = parse(R"(graph(%0 "x": f32[2]) {
  %1: f32[2] = t::a(self=%0)
  %2: f32[2] = t::b(self=%1)
  return (%2)
}
)");
  Node &first = *graph.nodes().front(), &second = *graph.nodes().back();
  graph.set_argument(first, 0, &second.output());
  EXPECT_THROW(ir::verify(graph), std::logic_error);
}

TEST(Ir, ContiguityIsTorchs) {
  EXPECT_TRUE((TensorType{DType::f32, {2, 1, 3}, {3, 99, 1}}.is_contiguous()));
  EXPECT_TRUE((TensorType{DType::f32, {0, 3}, {7, 7}}.is_contiguous()));
  EXPECT_FALSE((TensorType{DType::f32, {2, 3}, {1, 2}}.is_contiguous()));
  EXPECT_EQ(contiguous_strides({2, 0, 3}), (std::vector<Dim>{3, 3, 1}));
}

TEST(Ir, BytesReachToTheLastElement) {
  EXPECT_EQ(contiguous(DType::f16, {3, 5}).bytes(), 30);
  EXPECT_EQ((TensorType{DType::f32, {2, 3}, {10, 1}}.bytes()), 52);
  EXPECT_EQ((TensorType{DType::i64, {7, 2}, {0, 1}}.bytes()), 16);  // expanded
  EXPECT_EQ((TensorType{DType::c128, {}, {}}.bytes()), 16);
  EXPECT_EQ((TensorType{DType::f64, {4, 0}, {9, 9}}.bytes()), 0);
}

TEST(Ir, HalfTypesAreWidened) {
  for (const auto dtype : {DType::f16, DType::bf16}) {
    EXPECT_TRUE(is_half(dtype));
    EXPECT_EQ(wide(dtype), DType::f32);
  }
  for (const auto dtype : {DType::f64, DType::f32, DType::f8_e4m3, DType::i16, DType::boolean, DType::c64}) {
    EXPECT_FALSE(is_half(dtype));
    EXPECT_EQ(wide(dtype), dtype);
  }
}

RC_GTEST_PROP(Ir, FloatsSurviveTheText, (double value)) {
  Graph graph;
  graph.add_node("t::o", {{"v", Attribute(value)}, {"l", Attribute(std::vector<double>{value, 1.0})}}, {});
  const auto again = parse(to_string(graph));
  RC_ASSERT(to_string(again) == to_string(graph));
  RC_ASSERT(std::get<double>(std::get<Attribute>(*again.nodes().front()->argument("v"))) == value);
}

RC_GTEST_PROP(Ir, NamesSurviveTheText, (const std::string& name)) {
  Graph graph;
  graph.add_input(name, contiguous(DType::i8, {1, 0, 5}));
  RC_ASSERT(parse(to_string(graph)).input_name(0) == name);
}

}  // namespace
}  // namespace graft::ir
