// The kernels of all operator cases as objects for machines of any kind: `arch_kernels [--all] FOLDER
// LEVEL...`. With --all over all layouts, else over two.
//
// The compiler makes kernels of the cases in unit/op_cases.h, and its CPU target machine code of them for
// each level asked for, of this architecture or another. Made-up data and the results that are allowed on it
// (codegen/evaluate.h) go into FOLDER/cases; FOLDER/LEVEL has the objects, their list `objects` and
// `table.c`. run_kernels.c, linked with those, runs them on that data. test_arch.py does all of it.
//
// How kernels come about is tested elsewhere (LoweringOps); what differs here is the machine code alone.
#include <llvm/IR/LLVMContext.h>
#include <llvm/IR/Module.h>
#include <llvm/Support/TargetSelect.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "capture/capture.h"
#include "codegen/evaluate.h"
#include "compiler/lower.h"
#include "ir/parser.h"
#include "targets/cpu/emit.h"
#include "targets/cpu/trial_memory.h"
#include "targets/targets.h"
#include "unit/op_cases.h"
#include "unit/op_inputs.h"

namespace graft {
namespace {

using at::Tensor;
using codegen::Kernel;
using op_cases::Case;
using op_cases::Inputs;
using op_cases::Layout;
using Tensors = std::vector<Tensor>;

// --- levels

struct Level {
  std::string name;
  cpu::Host host;
};

const std::vector<Level>& levels() {
  const std::string x86 = "x86_64-unknown-linux-gnu", arm = "aarch64-unknown-linux-gnu";
  const std::string avx2 =
      "+avx,+avx2,+bmi,+bmi2,+f16c,+fma,+lzcnt,+movbe,+popcnt,+sse3,+sse4.1,+sse4.2,+ssse3,+xsave";
  const std::string avx512 = avx2 + ",+avx512bw,+avx512cd,+avx512dq,+avx512f,+avx512vl";
  static const std::vector<Level> all = {
      {"x86_64-sse2", {x86, "x86-64", "+sse,+sse2", 16}},
      {"x86_64-avx2", {x86, "x86-64-v3", avx2, 32}},
      {"x86_64-avx512", {x86, "x86-64-v4", avx512, 64}},
      {"aarch64-neon", {arm, "generic", "+fp-armv8,+neon", 16}},
      {"aarch64-fp16", {arm, "neoverse-n1", "+dotprod,+fp-armv8,+fullfp16,+lse,+neon", 16}},
  };
  return all;
}

const Level& level_named(const std::string& name) {
  for (const auto& level : levels())
    if (level.name == name) return level;
  std::string known;
  for (const auto& level : levels()) known += " " + level.name;
  throw std::invalid_argument("no level " + name + ", only" + known);
}

// --- kernels

/// Each different kernel once, with a name that says what it computes.
class Kernels {
 public:
  struct Named {
    std::string name;
    Kernel kernel;
  };
  const std::vector<Named>& all() const { return all_; }
  int64_t left_out() const { return left_out_; }

  void add(ir::Graph graph, const std::string& where) {
    const auto lowered = lower(std::move(graph), target_for({}));
    for (const auto& step : lowered.schedule.steps) {
      if (step.external || !seen_.insert(to_string(step.kernel)).second) continue;
      if (!is_to_be_run(step.kernel)) {
        ++left_out_;
        continue;
      }
      std::string name = where;
      for (const auto* node : step.nodes) name += " " + node->op();
      all_.push_back({std::move(name), step.kernel});
    }
  }

 private:
  /// Not what has no points, and not what reads its own results: data is made up for each buffer alone.
  static bool is_to_be_run(const Kernel& kernel) {
    if (kernel.kept_points() == 0 || kernel.reduced_points() == 0) return false;
    std::set<int> read, written;
    for (const auto& i : kernel.code) {
      if (i.op == codegen::Op::load) read.insert(i.buffer);
      if (i.op == codegen::Op::store) written.insert(i.buffer);
    }
    return std::none_of(written.begin(), written.end(), [&](int buffer) { return read.contains(buffer); });
  }

  std::vector<Named> all_;
  std::set<std::string> seen_;
  int64_t left_out_ = 0;
};

ir::Graph captured(const std::vector<Case>& cases, const Tensors& inputs, bool gradients) {
  const ModuleTree none;
  const Traceable function = [&](const Tensors& in) {
    Tensors outputs;
    outputs.reserve(cases.size());
    for (const auto& c : cases) outputs.push_back(c.run(Inputs::of(in)));
    return outputs;
  };
  return capture({&function, inputs, &none, gradients}).graph;
}

/// Of cases together, as the compiler fuses them; one by one where one of them has no graph here.
void add_cases(Kernels& kernels, const std::vector<Case>& cases, const Layout& layout, at::ScalarType dtype) {
  if (cases.empty()) return;
  const auto where = std::string(c10::toString(dtype)) + " " + layout.name + ":";
  try {
    kernels.add(captured(cases, op_cases::inputs_for(layout, dtype).list(), false), where);
  } catch (const std::exception&) {
    if (cases.size() == 1) return;  // LoweringOps says what is wrong
    for (const auto& c : cases) add_cases(kernels, {c}, layout, dtype);
  }
}

void add_gradient(Kernels& kernels, const Case& c, const Layout& layout, at::ScalarType dtype) {
  if (!(c.types & op_cases::floats) || (c.needs & op_cases::no_gradient)) return;
  auto inputs = op_cases::inputs_for(layout, dtype).list();
  for (size_t i = 0; i < 5; ++i) inputs[i] = inputs[i].detach().requires_grad_();
  try {
    kernels.add(captured({c}, inputs, true), std::string(c10::toString(dtype)) + " gradient:");
  } catch (const std::exception&) {  // LoweringGradients says what is wrong
  }
}

/// Data is made up later: layouts that differ in data, and those that only take long, are left out.
bool is_wanted(const Layout& layout, bool all) {
  return layout.how != op_cases::How::special &&
         (all ? layout.run != op_cases::Run::seldom : layout.run == op_cases::Run::always);
}

Kernels make_kernels(bool all) {
  Kernels kernels;
  at::manual_seed(1);
  for (const auto dtype : op_cases::dtypes)
    for (const auto& layout : op_cases::layouts()) {
      if (!is_wanted(layout, all) || !op_cases::chosen(layout, dtype)) continue;
      for (const auto& family : op_cases::families()) {
        std::vector<Case> cases;
        for (const auto& c : family)
          if (op_cases::applies(c, layout, dtype) && !(c.calls & op_cases::kind_of(dtype)))
            cases.push_back(c);
        add_cases(kernels, cases, layout, dtype);
      }
    }
  for (const auto dtype : {at::kFloat, at::kBFloat16})
    for (const auto& c : op_cases::all_cases())
      if (op_cases::applies(c, op_cases::layouts()[0], dtype))
        add_gradient(kernels, c, op_cases::layouts()[0], dtype);
  for (const auto& c : op_cases::text_cases()) kernels.add(ir::parse(c.text), "graph:");
  return kernels;
}

// --- data

/// As run_kernels.c numbers them.
int64_t type_number(ir::DType dtype) {
  using ir::DType;
  constexpr DType order[] = {DType::f64, DType::f32, DType::f16, DType::bf16, DType::i64,
                             DType::i32, DType::i16, DType::i8,  DType::u8};
  if (dtype == DType::boolean) dtype = DType::u8;
  const auto* found = std::find(std::begin(order), std::end(order), dtype);
  if (found == std::end(order)) throw std::logic_error("a kernel has a buffer of an unknown type");
  return found - std::begin(order);
}

class Words {
 public:
  explicit Words(const std::filesystem::path& path) : file_(path, std::ios::binary) {
    file_.exceptions(std::ios::badbit | std::ios::failbit);
  }
  template <class T>
  void put(T word) {
    static_assert(sizeof(T) == 8);
    bytes(&word, sizeof word);
  }
  void halves(int32_t a, int32_t b) {
    bytes(&a, sizeof a);
    bytes(&b, sizeof b);
  }
  /// Filled up to whole words.
  void filled(const void* from, int64_t size) {
    constexpr char zeros[8] = {};
    bytes(from, size);
    bytes(zeros, (8 - size % 8) % 8);
  }
  void close() { file_.close(); }

 private:
  void bytes(const void* from, int64_t size) { file_.write(static_cast<const char*>(from), size); }
  std::ofstream file_;
};

/// All of them.
codegen::Points points_of(const Kernel& kernel) {
  codegen::Points points;
  const size_t dims = kernel.dims.size();
  points.reduced.resize(dims);
  points.rows = kernel.kept_points();
  points.kept.resize(static_cast<size_t>(points.rows) * dims);
  for (size_t d = 0; d < dims; ++d)
    if (kernel.dims[d].reduced)
      for (int64_t at = 0; at < kernel.dims[d].extent; ++at) points.reduced[d].push_back({at});
  for (int64_t row = 0; row < points.rows; ++row) {
    int64_t rest = row;
    for (size_t d = dims; d-- > 0;) {
      if (kernel.dims[d].reduced) continue;
      points.kept[static_cast<size_t>(row) * dims + d].at = rest % kernel.dims[d].extent;
      rest /= kernel.dims[d].extent;
    }
  }
  // Along the loop, across lanes, across parts, whatever a level's plan is.
  points.deepest = static_cast<double>(10 * kernel.reduced_points() + kernel.kept_points() + 64);
  return points;
}

void put_round(Words& file, const Kernel& kernel, cpu::TrialMemory& memory,
               const std::vector<codegen::Stored>& stored) {
  for (size_t b = 0; b < kernel.buffers.size(); ++b) {
    const auto [first, end] = memory.extent(static_cast<int>(b));
    const int64_t size = ir::size_of(kernel.buffers[b].dtype);
    file.filled(static_cast<const char*>(memory.buffers()[b]) + first * size, (end - first) * size);
  }
  file.put(static_cast<int64_t>(stored.size()));
  for (const auto& each : stored) {
    const bool floating = ir::is_floating(kernel.buffers[static_cast<size_t>(each.buffer)].dtype);
    file.halves(each.buffer, floating && each.real.nan);
    file.put(each.element);
    if (floating) {
      file.put(each.real.low);
      file.put(each.real.high);
    } else {
      file.put(each.whole.low);
      file.put(each.whole.high);
    }
  }
}

/// Rounds in which TrialMemory has ordinary numbers, NaN and infinities, large ones, equal ones. False if
/// indices that are computed are out of range in all of them.
bool put_case(Words& file, const Kernels::Named& named) {
  constexpr int tried[] = {0, 2, 3, 4, 5, 7};
  const auto& kernel = named.kernel;
  const auto points = points_of(kernel);
  const int64_t together = (kernel.reduces_rows() ? points.rows : 1) * kernel.reduced_points();
  cpu::TrialMemory memory(kernel, together);
  if (!memory.available()) throw std::runtime_error("there is no memory for " + named.name);

  struct Round {
    int number;
    int64_t largest_index;
  };
  std::vector<Round> rounds;
  int64_t largest_index = int64_t{1} << 62;
  for (const int round : tried) {
    memory.start_round(round, largest_index);
    if (codegen::evaluate(kernel, points, memory).in_range)
      rounds.push_back({round, largest_index});
    else
      largest_index = largest_index > 1 ? 1 : 0;
  }
  if (rounds.empty()) return false;

  file.put(static_cast<int64_t>(named.name.size()));
  file.filled(named.name.data(), static_cast<int64_t>(named.name.size()));
  file.put(static_cast<int64_t>(kernel.buffers.size()));
  for (size_t b = 0; b < kernel.buffers.size(); ++b) {
    const auto [first, end] = memory.extent(static_cast<int>(b));
    file.put(type_number(kernel.buffers[b].dtype));
    file.put(first);
    file.put(end);
  }
  file.put(static_cast<int64_t>(rounds.size()));
  for (const auto& round : rounds) {
    memory.start_round(round.number, round.largest_index);
    const auto expected = codegen::evaluate(kernel, points, memory);
    // What is not stored shows.
    if (!kernel.scatters())
      for (const auto& each : expected.stored) memory.spoil(each.buffer, each.element);
    put_round(file, kernel, memory, expected.stored);
  }
  return true;
}

/// Writes the file, and gives the kernels that are in it.
std::vector<const Kernels::Named*> write_cases(const std::filesystem::path& path, const Kernels& kernels) {
  std::vector<const Kernels::Named*> kept;
  const auto without_count = path.string() + ".tmp";
  Words data(without_count);
  for (const auto& named : kernels.all())
    if (put_case(data, named)) kept.push_back(&named);
  data.close();
  Words file(path);
  file.put(static_cast<int64_t>(kept.size()));
  file.close();
  std::ofstream(path, std::ios::binary | std::ios::app)
      << std::ifstream(without_count, std::ios::binary).rdbuf();
  std::filesystem::remove(without_count);
  return kept;
}

// --- code

std::string object_of(const Kernel& kernel, const cpu::Plan& plan, const std::string& symbol,
                      const cpu::Host& host) {
  llvm::LLVMContext context;
  llvm::Module module("graft", context);
  cpu::set_target(module, host);
  cpu::emit(module, kernel, plan, symbol, host);
  return cpu::compile_object(module, host);
}

/// Runs body(0) ... body(count - 1) on all cores; the first exception comes out.
void in_parallel(size_t count, const std::function<void(size_t)>& body) {
  std::atomic<size_t> next{0};
  std::mutex guard;
  std::exception_ptr failed;
  const auto work = [&] {
    for (size_t i = next++; i < count; i = next++) try {
        body(i);
      } catch (...) {
        const std::lock_guard<std::mutex> lock(guard);
        if (!failed) failed = std::current_exception();
      }
  };
  std::vector<std::thread> workers;
  for (unsigned i = 1; i < std::thread::hardware_concurrency(); ++i) workers.emplace_back(work);
  work();
  for (auto& worker : workers) worker.join();
  if (failed) std::rethrow_exception(failed);
}

void write_level(const std::filesystem::path& folder, const Level& level,
                 const std::vector<const Kernels::Named*>& kernels) {
  std::filesystem::create_directories(folder);
  std::vector<cpu::Plan> plans(kernels.size());
  const auto symbol = [](size_t i) { return "k" + std::to_string(i); };
  in_parallel(kernels.size(), [&](size_t i) {
    plans[i] = cpu::plan(kernels[i]->kernel, level.host);
    std::ofstream file(folder / (symbol(i) + ".o"), std::ios::binary);
    file.exceptions(std::ios::badbit | std::ios::failbit);
    file << object_of(kernels[i]->kernel, plans[i], symbol(i), level.host);
  });
  std::ofstream table(folder / "table.c"), objects(folder / "objects");
  table.exceptions(std::ios::badbit | std::ios::failbit);
  table << "#include \"kernel_table.h\"\n";
  for (size_t i = 0; i < kernels.size(); ++i) {
    table << "kernel_function " << symbol(i) << ";\n";
    objects << (folder / (symbol(i) + ".o")).string() << "\n";
  }
  table << "const struct kernel kernels[] = {\n";
  for (size_t i = 0; i < kernels.size(); ++i) {
    const auto& p = plans[i];
    table << "  {" << symbol(i) << ", " << p.tasks << ", " << p.parts << ", " << p.stages << ", "
          << p.parted_stages << ", " << p.partial_words << "},\n";
  }
  table << "};\nconst int64_t kernel_count = " << kernels.size() << ";\n";
}

void run(bool all, const std::filesystem::path& folder, const std::vector<std::string>& names) {
  std::vector<Level> wanted;
  for (const auto& name : names) wanted.push_back(level_named(name));
  std::filesystem::create_directories(folder);
  // The library itself knows this machine's architecture only.
  llvm::InitializeAllTargetInfos();
  llvm::InitializeAllTargets();
  llvm::InitializeAllTargetMCs();
  llvm::InitializeAllAsmPrinters();
  const auto kernels = make_kernels(all);
  const auto kept = write_cases(folder / "cases", kernels);
  for (const auto& level : wanted) write_level(folder / level.name, level, kept);
  std::cout << kept.size() << " kernels, "
            << kernels.left_out() + static_cast<int64_t>(kernels.all().size() - kept.size()) << " left out\n";
}

}  // namespace
}  // namespace graft

int main(int argc, char** argv) {
  try {
    std::vector<std::string> words(argv + 1, argv + argc);
    const bool all = !words.empty() && words[0] == "--all";
    if (all) words.erase(words.begin());
    if (words.size() < 2) throw std::invalid_argument("arch_kernels [--all] FOLDER LEVEL...");
    graft::run(all, words[0], {words.begin() + 1, words.end()});
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
  return 0;
}
