// Random programs of a few updates of rows in place over one to three buffers (caches), whose sources are
// other rows, as they were or as an update before has left them: outputs and buffers are eager's, whatever is
// written in place or at once. Chains of calls, each with the last one's results, keep no
// more than one call does.
//
// GRAFT_FUZZ_COUNT programs (default 80), from GRAFT_FUZZ_SEED on (default 1).
#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>
#include <torch/autograd.h>

#include <sstream>

#include "compiled_check.h"
#include "graft/compile.h"
#include "random_programs.h"

namespace graft {
namespace {

using namespace random_programs;
using testing_tools::differs;

constexpr int64_t rows = 9, columns = 4, updated = 2;

/// Rows of some buffer, or of the argument x.
struct Source {
  enum Kind : uint8_t { argument, rows_of, rows_at_index, last_rows, sum_of_two } kind;
  size_t buffer;
  bool computed;  ///< changed by a kernel, rather than as it lies there
};

struct Update {
  enum Kind : uint8_t { index_copy, index_put, index_put_add, scatter, slice_copy, index_fill, add } kind;
  size_t buffer, index;
  Source source;
};

struct Program {
  size_t buffers = 1;
  /// Buffers that are parts of one memory, or the same tensor twice.
  enum Sharing : uint8_t { apart, overlapping, twice } sharing = apart;
  std::vector<Update> updates;
  std::vector<size_t> read_after;  ///< a buffer whose sum is an output, after each update (none: buffers)

  Tensors run(Tensors in) const;
  Tensors inputs() const;
  std::string text() const;
};

/// x, two indices, the buffers.
constexpr size_t first_buffer = 3;

Tensor rows_from(const Source& source, const Tensors& in, size_t index) {
  const auto& from = in[first_buffer + source.buffer];
  const auto rows_there = [&] {
    switch (source.kind) {
      case Source::argument:
        return in[0];
      case Source::rows_of:
        return from.slice(0, 3, 3 + updated);
      case Source::rows_at_index:
        return from.index_select(0, in[1 + index]);
      case Source::last_rows:
        return from.slice(0, rows - updated, rows);
      default:
        return from.slice(0, 0, updated) + from.slice(0, 4, 4 + updated);
    }
  }();
  return source.computed ? rows_there * 2 - in[0] : rows_there;
}

Tensors Program::run(Tensors in) const {
  Tensors results;
  for (size_t i = 0; i < updates.size(); ++i) {
    const auto& [kind, buffer, index, source] = updates[i];
    auto& into = in[first_buffer + buffer];
    const auto& places = in[1 + index];
    auto what = rows_from(source, in, index);
    // Eager code refuses to copy memory into itself, or has no order for it.
    if (sharing != apart || source.buffer == buffer) what = what.clone();
    switch (kind) {
      case Update::index_copy:
        into.index_copy_(0, places, what);
        break;
      case Update::index_put:
        into.index_put_({places}, what);
        break;
      case Update::index_put_add:
        into.index_put_({places}, what, /*accumulate=*/true);
        break;
      case Update::scatter:
        into.scatter_(0, places.unsqueeze(1).expand({updated, columns}), what);
        break;
      case Update::slice_copy:
        into.slice(0, 1, 1 + updated).copy_(what);
        break;
      case Update::index_fill:
        into.index_fill_(0, places, 3);
        break;
      case Update::add:
        into.slice(0, 5, 5 + updated).add_(what);
        break;
    }
    if (read_after[i] < buffers) results.push_back(in[first_buffer + read_after[i]].sum(0));
  }
  results.push_back(in[first_buffer] + 1);
  return results;
}

Tensors Program::inputs() const {
  // Whole numbers: sums are exact in any order.
  const auto numbers = [](at::IntArrayRef sizes) { return at::randint(-50, 50, sizes).to(at::kFloat); };
  Tensors made = {numbers({updated, columns}), at::randperm(rows).slice(0, 0, updated).clone(),
                  at::randperm(rows).slice(0, 0, updated).clone()};
  const auto memory = numbers({rows + 4, columns});
  for (size_t b = 0; b < buffers; ++b)
    made.push_back(sharing == twice && b > 0 ? made.back()
                   : sharing == overlapping
                       ? memory.slice(0, 2 * static_cast<int64_t>(b), 2 * static_cast<int64_t>(b) + rows)
                       : numbers({rows, columns}));
  return made;
}

std::string Program::text() const {
  static const char* const kinds[] = {"index_copy_", "index_put_",  "index_put_ (adds)", "scatter_",
                                      "slice.copy_", "index_fill_", "slice.add_"};
  static const char* const sources[] = {"x", "rows 3..5", "rows at the index", "last rows",
                                        "rows 0.. + rows 4.."};
  static const char* const sharings[] = {"", ", overlapping", ", the same"};
  std::ostringstream all;
  all << buffers << " buffers" << sharings[sharing] << "\n";
  for (size_t i = 0; i < updates.size(); ++i) {
    const auto& u = updates[i];
    all << "  " << kinds[u.kind] << " of buffer " << u.buffer << " at index " << u.index << " from "
        << sources[u.source.kind] << " of " << u.source.buffer << (u.source.computed ? ", computed" : "");
    if (read_after[i] < buffers) all << "; then reads " << read_after[i];
    all << "\n";
  }
  return all.str();
}

Program generate(uint64_t seed) {
  Random r(seed);
  Program program;
  program.buffers = static_cast<size_t>(r.number(1, 3));
  if (program.buffers > 1 && r.chance(0.3))
    program.sharing = r.chance(0.5) ? Program::overlapping : Program::twice;
  const auto count = r.number(2, 4);
  for (int64_t i = 0; i < count; ++i) {
    Update update{};
    // Mostly what is written in place and done together.
    update.kind = static_cast<Update::Kind>(r.chance(0.6) ? 0 : r.number(1, 6));
    update.buffer = r.index(program.buffers);
    update.index = r.chance(0.8) ? 0 : 1;
    update.source = {static_cast<Source::Kind>(r.number(0, 4)), r.index(program.buffers), r.chance(0.5)};
    program.updates.push_back(update);
    program.read_after.push_back(r.chance(0.3) ? r.index(program.buffers) : program.buffers);
  }
  return program;
}

/// What is wrong with the program; empty if nothing.
std::string judge(const Program& program, uint64_t seed, bool verify) {
  const at::NoGradGuard no_grad;
  try {
    const auto fast =
        compile([&](Tensors in) { return program.run(std::move(in)); },
                // What changes through one part and is seen by another is no graph.
                {.fullgraph = program.sharing != Program::overlapping, .verify = verify, .cache = false});
    at::manual_seed(seed);
    for (int call = 0; call < 4; ++call) {
      auto generator = at::detail::getDefaultCPUGenerator();
      const auto state = generator.get_state();
      auto mine = program.inputs();
      generator.set_state(state);
      auto eagers = program.inputs();
      const auto got = fast(mine), want = program.run(eagers);
      const auto where = "call " + std::to_string(call) + ": ";
      for (size_t i = 0; i < want.size(); ++i)
        if (auto what = differs(got[i], want[i], {0, 0, 0}); !what.empty())
          return where + "output " + std::to_string(i) + " " + what;
      for (size_t i = 0; i < eagers.size(); ++i)
        if (auto what = differs(mine[i], eagers[i], {0, 0, 0}); !what.empty())
          return where + "argument " + std::to_string(i) + " " + what;
    }
  } catch (const std::exception& error) {
    return "throws " + first_line(error);
  }
  return "";
}

/// Leaves out what the failure does not need.
Program shrunk(Program program, uint64_t seed, bool verify) {
  for (size_t i = program.updates.size(); program.updates.size() > 1 && i-- > 0;) {
    auto smaller = program;
    smaller.updates.erase(smaller.updates.begin() + static_cast<int64_t>(i));
    smaller.read_after.erase(smaller.read_after.begin() + static_cast<int64_t>(i));
    if (!judge(smaller, seed, verify).empty()) program = smaller;
  }
  for (auto& read : program.read_after) {
    const auto before = std::exchange(read, program.buffers);
    if (judge(program, seed, verify).empty()) read = before;
  }
  return program;
}

TEST(RowUpdates, RandomProgramsAreAsEager) {
  const auto count = from_environment("GRAFT_FUZZ_COUNT", 80), start = from_environment("GRAFT_FUZZ_SEED", 1);
  int64_t failures = 0;
  for (uint64_t seed = start; seed < start + count && failures < 5; ++seed) {
    const auto program = generate(seed);
    const bool verify = seed % 4 == 0;
    if (judge(program, seed, verify).empty()) continue;
    ++failures;
    const auto small = shrunk(program, seed, verify);
    ADD_FAILURE() << "seed " << seed << ": " << judge(small, seed, verify) << "\n" << small.text();
  }
}

// --- chains of calls

/// How many tensors of a chain are still there when only the last is held.
template <class F>
size_t tensors_left(const F& step, Tensor state) {
  std::vector<c10::weak_intrusive_ptr<c10::StorageImpl>> all;
  for (int call = 0; call < 12; ++call) {
    state = step(state);
    all.emplace_back(
        c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(state.storage().unsafeGetStorageImpl()));
  }
  return static_cast<size_t>(
      std::ranges::count_if(all, [](const auto& weak) { return weak.use_count() > 0; }));
}

TEST(RowUpdates, AChainOfCallsKeepsNoFormerOnes) {
  const auto weight = at::randn({16, 16}).requires_grad_();
  const auto f = [&](Tensor x) { return x.matmul(weight).tanh() + x; };
  const auto fast = compile(f, {.fullgraph = true, .cache = false});
  const auto start = at::randn({4, 16});
  constexpr size_t at_most = 3;  // the last, and what a compiled function keeps for the next run
  {
    const at::NoGradGuard no_grad;
    EXPECT_LE(tensors_left(fast, start), at_most);
  }
  {
    const c10::InferenceMode inference;
    EXPECT_LE(tensors_left(fast, start), at_most);
  }
  EXPECT_LE(tensors_left([&](const Tensor& x) { return fast(x).detach(); }, start), at_most);
  EXPECT_LE(tensors_left(
                [&](const Tensor& x) {
                  auto y = fast(x);
                  y.sum().backward();
                  return y.detach();
                },
                start),
            at_most);
}

/// The function cuts the history itself: it is the weight alone that needs a gradient. Eager code keeps none
/// of the calls before, although each argument has a history.
TEST(RowUpdates, AChainThatTheFunctionCutsKeepsNoFormerOnes) {
  const auto weight = at::randn({16, 16}).requires_grad_();
  const auto start = at::randn({4, 16});
  for (const bool reads : {false, true}) {  // whether the backward pass needs the argument
    const auto f = [&](Tensor x) {
      const auto cut = x.detach();
      return reads ? cut.matmul(weight).tanh() : cut.sum() + weight.tanh().slice(0, 0, 4);
    };
    const auto fast = compile(f, {.fullgraph = true, .cache = false});
    EXPECT_LE(tensors_left(f, start), 3u);
    EXPECT_LE(tensors_left(fast, start), 4u) << reads;
  }
}

/// What eager code holds for a backward pass a compiled function may hold, too; when the last result goes,
/// all of it goes.
TEST(RowUpdates, AChainWithAHistoryGoesWithItsEnd) {
  const auto weight = at::randn({16, 16}).requires_grad_();
  const auto f = [&](Tensor x) { return x.matmul(weight).tanh() + x; };
  const auto fast = compile(f, {.fullgraph = true, .cache = false});
  std::vector<c10::weak_intrusive_ptr<c10::StorageImpl>> all;
  {
    auto state = at::randn({4, 16});
    for (int call = 0; call < 8; ++call) {
      state = fast(state);
      all.emplace_back(
          c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(state.storage().unsafeGetStorageImpl()));
    }
    state.sum().backward();
  }
  size_t left = 0;
  for (const auto& weak : all) left += weak.use_count() > 0;
  EXPECT_LE(left, 3u);
}

/// A buffer that each call changes, with something that needs gradients: as much history as in eager code.
TEST(RowUpdates, AChangedBufferKeepsNoFormerCalls) {
  const auto weight = at::randn({4, 4}).requires_grad_();
  auto buffer = at::zeros({rows, 4});
  const auto index = at::tensor({2, 5}, at::kLong);
  const auto f = [&](Tensor state, Tensor x) {
    state.index_copy_(0, index, x.detach() * 2);
    return state.clone().matmul(weight).tanh();
  };
  const auto fast = compile(f, {.fullgraph = true, .cache = false});
  std::vector<c10::weak_intrusive_ptr<c10::StorageImpl>> all;
  for (int call = 0; call < 8; ++call) {
    const auto x = at::randn({2, 4});
    const auto y = fast(buffer, x);
    EXPECT_TRUE(y.requires_grad());
    EXPECT_FALSE(buffer.requires_grad());
    all.emplace_back(c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(x.storage().unsafeGetStorageImpl()));
    all.emplace_back(c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(y.storage().unsafeGetStorageImpl()));
  }
  size_t left = 0;
  for (const auto& weak : all) left += weak.use_count() > 0;
  EXPECT_LE(left, 3u);
}

}  // namespace
}  // namespace graft
