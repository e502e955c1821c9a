// A break is seen: one warning for each function, with the operator, the user's line, the module that the
// value comes from, and what to write in its place; explain() lists all of them. (This file is compiled with
// debug information.)
#include <gtest/gtest.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/types.h>

#include <filesystem>
#include <sstream>

#include "graft/compile.h"
#include "support/log.h"

namespace graft {
namespace {

using at::Tensor;

/// What is logged while it lives.
class Messages {
 public:
  Messages() {
    set_log_sink([this](std::string_view message) { all.emplace_back(message); });
  }
  ~Messages() { set_log_sink({}); }
  std::vector<std::string> all;
};

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

std::string here(int line) { return "test_break_reports.cpp:" + std::to_string(line) + ", in "; }

constexpr int line_of_item = __LINE__ + 1;
Tensor halved_by_item(const Tensor& x) { return x / x.sum().item<double>(); }

struct Reader : torch::nn::Module {
  torch::nn::Linear first{register_module("first", torch::nn::Linear(4, 4))};
  torch::nn::Linear second{register_module("second", torch::nn::Linear(4, 4))};
  Tensor forward(const Tensor& x) {
    const auto y = first(x);
    const auto z = second(y);
    return y.max().item<float>() > 0 ? z : -z;
  }
};

TEST(BreakReports, OneWarningForAFunction) {
  const Messages messages;
  const auto fast = compile(halved_by_item);
  for (int i = 0; i < 3; ++i) {
    fast(at::ones({4}));
    fast(at::ones({5}));
  }
  ASSERT_EQ(messages.all.size(), 1);
  const auto& text = messages.all[0];
  EXPECT_TRUE(has(text, "aten::_local_scalar_dense reads a tensor's value on the host")) << text;
  EXPECT_TRUE(has(text, here(line_of_item))) << text;
  EXPECT_TRUE(has(text, "halved_by_item(at::Tensor const&)")) << text;
  EXPECT_TRUE(has(text, "Return the tensor and read it outside")) << text;
  EXPECT_TRUE(has(text, "GRAFT_LOGS=-breaks")) << text;
  EXPECT_FALSE(has(text, "unknown function")) << text;
  EXPECT_FALSE(has(text, "\n")) << text;
}

TEST(BreakReports, TheModuleThatAValueComesFrom) {
  const Messages messages;
  compile(std::make_shared<Reader>())(at::ones({2, 4}));
  ASSERT_EQ(messages.all.size(), 1);
  EXPECT_TRUE(has(messages.all[0], "of a value that comes from module \"first\"")) << messages.all[0];
  EXPECT_TRUE(has(messages.all[0], "Reader::forward")) << messages.all[0];
}

TEST(BreakReports, TheErrorSaysTheSame) {
  try {
    compile(halved_by_item, {.fullgraph = true})(at::ones({4}));
    FAIL();
  } catch (const GraphBreak& found) {
    EXPECT_TRUE(has(found.reason(), here(line_of_item))) << found.reason();
    EXPECT_TRUE(has(found.backtrace(), "BreakReports_TheErrorSaysTheSame_Test::TestBody()"))
        << found.backtrace();
    EXPECT_FALSE(has(found.backtrace(), "c10::")) << found.backtrace();
  }
}

TEST(BreakReports, Advice) {
  const auto advice = [](auto f, const Tensor& x) -> std::string {
    try {
      compile(f, {.fullgraph = true})(x);
    } catch (const GraphBreak& found) {
      return found.reason();
    }
    return "no break";
  };
  const auto x = at::arange(4, at::kFloat);
  const auto whole = at::arange(4);
  EXPECT_TRUE(has(advice([](Tensor t) { return t.nonzero(); }, x), "Keep the mask"));
  EXPECT_TRUE(has(advice([](Tensor t) { return t.masked_select(t > 1); }, x), "Keep the shape"));
  EXPECT_TRUE(has(advice([](Tensor t) { return t.index({t > 1}); }, x), "A mask as an index"));
  EXPECT_TRUE(has(advice([](Tensor t) { return at::one_hot(t); }, whole), "aten::one_hot reads"));
  EXPECT_TRUE(has(advice([](Tensor t) { return at::one_hot(t); }, whole), "Give it the number of classes"));
  EXPECT_TRUE(has(advice([](Tensor t) { return at::bincount(t); }, whole), "Give it a minlength"));
  EXPECT_TRUE(has(advice([](Tensor t) { return t + *t.data_ptr<float>(); }, x), "Compute with operators"));
}

TEST(BreakReports, ExplainListsAllBreaks) {
  auto counter = at::zeros({});
  const auto fast = compile([&](Tensor x) {
    const auto sum = x.sum().item<double>();
    x.mul_(2);
    counter.add_(1);
    if (x.max().item<double>() > 3) x = x.masked_select(x > 1);
    return x * sum;
  });
  const auto x = at::arange(4, at::kFloat);
  const auto text = fast.explain(x);
  EXPECT_TRUE(has(text, "graphs: 0\ngraph breaks: 3\n")) << text;
  EXPECT_TRUE(has(text, "aten::_local_scalar_dense")) << text;
  EXPECT_TRUE(has(text, "aten::masked_select")) << text;
  EXPECT_TRUE(at::equal(x, at::arange(4, at::kFloat))) << "explain() has changed an argument";
  EXPECT_EQ(counter.item<double>(), 0) << "explain() has changed a tensor";
}

TEST(BreakReports, ExplainOfWhatRunsEagerly) {
  const auto printing = compile([](Tensor x) {
    std::ostringstream text;
    text << x;
    return x + 1;
  });
  EXPECT_TRUE(has(printing.explain(at::ones({3})), "graphs: 0\ngraph breaks: 1\n"));
  Tensor kept;
  const auto keeping = compile([&](Tensor x) { return kept = x * 2; });
  EXPECT_TRUE(has(keeping.explain(at::ones({3})), "graphs: 0\ngraph breaks: 1\n"));
  const auto pointing = compile([](Tensor x) { return x * *x.contiguous().data_ptr<float>(); });
  EXPECT_TRUE(has(pointing.explain(at::ones({3})), "graphs: 0\ngraph breaks: 1\n"));
  const auto failing = compile([](Tensor x) -> Tensor {
    x.add_(x.sum().item<double>());
    throw std::runtime_error("no");
  });
  const auto x = at::ones({3});
  EXPECT_THROW(failing.explain(x), std::runtime_error);
  EXPECT_TRUE(at::equal(x, at::ones({3})));
  // Only several calls tell that of these.
  int n = 0;
  const auto tensors = std::vector<Tensor>{at::ones({3}), at::zeros({3})};
  CompileOptions unreplayed;
  unreplayed.replay = Replay::off;
  const auto changing =
      compile([&](Tensor y) { return y + tensors[static_cast<size_t>(n) % 2]; }, unreplayed);
  for (n = 0; n < 3; ++n) changing(at::ones({3}));
  EXPECT_TRUE(has(changing.explain(at::ones({3})), "graphs: 0\ngraph breaks: 1\n"))
      << changing.explain(at::ones({3}));
}

}  // namespace
}  // namespace graft
