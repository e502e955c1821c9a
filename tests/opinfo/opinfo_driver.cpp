// Runs the cases that export.py wrote, each eagerly and through graft::compile: two calls that are watched,
// and one, with other numbers in other tensors, that is not.
//   opinfo_driver FOLDER
// Prints one line a case: its name, a tab, and what became of it:
//   passed              compiled, all in kernels and views
//   external            compiled, with calls of ATen's own operators
//   refused: REASON     it runs eagerly
//   eager: REASON       the eager function itself throws
//   wrong: WHAT
//   crashed: SIGNAL
// Cases run in a process of their own, which is replaced when it crashes.
#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <fcntl.h>
#include <graft/graft.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <torch/autograd.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <fstream>
#include <functional>
#include <iostream>
#include <sstream>

#include "opinfo_case.h"

namespace graft::opinfo {
namespace {

constexpr unsigned kSecondsForACase = 120;
constexpr size_t kCasesOfAProcess = 400;  // what was compiled stays in memory

using Function = std::function<Tensors(Tensors)>;

/// What a caller sees of one call.
struct Seen {
  Tensors inputs, outputs, gradients;
  std::string error, gradient_error;
};

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

/// Numbers that depend on the output's place and form only.
at::Tensor tangent_for(const at::Tensor& output, size_t index) {
  const auto generator = at::make_generator<at::CPUGeneratorImpl>(index + 1);
  return at::randn(output.sizes(), generator, output.options().requires_grad(false));
}

void add_gradients(Seen& seen) {
  Tensors roots, tangents, leaves;
  for (size_t i = 0; i < seen.outputs.size(); ++i) {
    const auto& output = seen.outputs[i];
    if (!output.defined() || !output.requires_grad() || output.layout() != at::kStrided) continue;
    roots.push_back(output);
    tangents.push_back(tangent_for(output, i));
  }
  for (const auto& input : seen.inputs)
    if (input.requires_grad()) leaves.push_back(input);
  if (roots.empty() || leaves.empty()) return;
  try {
    seen.gradients = torch::autograd::grad(roots, leaves, tangents, {}, false, /*allow_unused=*/true);
  } catch (const std::exception& error) {
    seen.gradient_error = first_line(error.what());
  }
}

Seen call(const Function& function, Tensors inputs) {
  Seen seen;
  seen.inputs = std::move(inputs);
  at::manual_seed(7);
  try {
    seen.outputs = function(seen.inputs);
  } catch (const std::exception& error) {
    seen.error = first_line(error.what());
    return seen;
  }
  add_gradients(seen);
  return seen;
}

/// How far numbers may be apart: of each by itself, and in addition of the largest.
struct Bounds {
  double of_each, of_largest;
};

Bounds bounds_for(at::ScalarType dtype) {
  switch (c10::toRealValueType(dtype)) {
    case at::kDouble:
      return {1e-9, 1e-11};
    case at::kFloat:
      return {2e-5, 1e-6};
    default:
      return {2e-2, 2e-2};
  }
}

at::Tensor numbers_of(const at::Tensor& tensor) {
  auto plain = tensor.detach().resolve_conj().resolve_neg();
  if (plain.is_complex()) plain = at::view_as_real(plain);
  return plain.contiguous();
}

/// Empty where the numbers are the same, up to the bounds.
std::string number_difference(const at::Tensor& got, const at::Tensor& want, bool to_the_bit) {
  if (want.numel() == 0) return "";
  auto g = numbers_of(got), w = numbers_of(want);
  auto bad = g.ne(w);
  if (g.is_floating_point()) {
    bad = bad.logical_and(g.isnan().logical_and(w.isnan()).logical_not());
    if (!to_the_bit) {
      const auto bounds = bounds_for(want.scalar_type());
      g = g.to(at::kDouble);
      w = w.to(at::kDouble);
      const auto finite = w.isfinite();
      const auto largest = w.where(finite, at::zeros_like(w)).abs().max();
      const auto near = (g - w).abs() <= w.abs() * bounds.of_each + largest * bounds.of_largest;
      bad = bad.logical_and(near.logical_and(finite).logical_not());
    }
  }
  if (!bad.any().item<bool>()) return "";
  const auto first = bad.flatten().nonzero()[0].item<int64_t>();
  std::ostringstream text;
  text.precision(8);
  text << bad.sum().item<int64_t>() << " of " << bad.numel() << " numbers, the first at " << first << ": "
       << g.flatten()[first].item<double>() << " in place of " << w.flatten()[first].item<double>();
  return text.str();
}

enum class Compare : uint8_t { form, numbers, bits };

std::string difference(const at::Tensor& got, const at::Tensor& want, Compare how, bool with_strides) {
  if (got.defined() != want.defined()) return got.defined() ? "it is defined" : "it is not defined";
  if (!want.defined()) return "";
  std::ostringstream text;
  const auto differ = [&](const char* what, const auto& a, const auto& b) {
    text << what << " " << a << " in place of " << b;
    return text.str();
  };
  if (got.scalar_type() != want.scalar_type()) return differ("dtype", got.scalar_type(), want.scalar_type());
  if (got.layout() != want.layout()) return differ("layout", got.layout(), want.layout());
  if (got.sizes() != want.sizes()) return differ("sizes", got.sizes(), want.sizes());
  if (want.layout() != at::kStrided) {
    if (how == Compare::form) return "";
    return number_difference(got.to_dense(), want.to_dense(), how == Compare::bits);
  }
  for (int64_t d = 0; with_strides && want.numel() > 0 && d < want.dim(); ++d)
    if (want.size(d) > 1 && got.stride(d) != want.stride(d))
      return differ("strides", got.strides(), want.strides());
  if (with_strides && got.is_conj() != want.is_conj())
    return differ("conjugate bit", got.is_conj(), want.is_conj());
  if (with_strides && got.requires_grad() != want.requires_grad())
    return differ("requires_grad", got.requires_grad(), want.requires_grad());
  return how == Compare::form ? "" : number_difference(got, want, how == Compare::bits);
}

std::vector<bool> sharing(const Seen& seen) {
  const auto storage = [](const at::Tensor& t) {
    return t.defined() && t.has_storage() && t.numel() > 0 ? t.storage().unsafeGetStorageImpl() : nullptr;
  };
  std::vector<bool> shares;
  for (const auto& output : seen.outputs) {
    for (const auto* others : {&seen.inputs, &seen.outputs})
      for (const auto& other : *others)
        shares.push_back(storage(output) && storage(output) == storage(other));
  }
  return shares;
}

std::string difference(const Seen& got, const Seen& want, Compare how) {
  if (got.error != want.error && (got.error.empty() || want.error.empty()))
    return got.error.empty() ? "no error in place of: " + want.error : "error: " + got.error;
  if (!got.error.empty()) return "";
  for (size_t i = 0; i < want.outputs.size(); ++i)
    if (const auto what = difference(got.outputs[i], want.outputs[i], how, /*with_strides=*/true);
        !what.empty())
      return "output " + std::to_string(i) + ": " + what;
  for (size_t i = 0; i < want.inputs.size(); ++i)
    if (const auto what = difference(got.inputs[i], want.inputs[i], how, /*with_strides=*/true);
        !what.empty())
      return "input " + std::to_string(i) + " afterwards: " + what;
  if (sharing(got) != sharing(want)) return "outputs share memory with other tensors than eager's do";
  if (got.gradient_error.empty() != want.gradient_error.empty())
    return "gradients: " + (got.gradient_error.empty() ? "no error in place of: " + want.gradient_error
                                                       : "error: " + got.gradient_error);
  for (size_t i = 0; i < want.gradients.size(); ++i)
    if (const auto what = difference(got.gradients[i], want.gradients[i], how, /*with_strides=*/false);
        !what.empty())
      return "gradient " + std::to_string(i) + ": " + what;
  return "";
}

const CompileOptions options_of_cases{.cache = false};

std::string reason_of_break(const Case& one, const Function& function) {
  auto options = options_of_cases;
  options.fullgraph = true;
  const auto compiled = graft::compile(function, options);
  for (const bool other : {false, true})
    if (auto seen = call([&](const Tensors& inputs) { return compiled(inputs); }, one.inputs(other));
        !seen.error.empty())
      return seen.error;
  return "not with fullgraph";
}

std::string outcome(const Case& one) {
  const Function function = [&](const Tensors& inputs) { return one.run(inputs); };
  const auto how = one.has_random_memory() ? Compare::form : Compare::numbers;
  const Seen eager[] = {call(function, one.inputs(false)), call(function, one.inputs(true))};
  if (!eager[0].error.empty()) return "eager: " + eager[0].error;

  graft::reset();
  const auto compiled = graft::compile(function, options_of_cases);
  const Function run_compiled = [&](const Tensors& inputs) { return compiled(inputs); };
  for (const int number : {0, 1, 2}) {
    const bool other = number == 2;
    const auto& want = eager[other];
    const auto got = call(run_compiled, one.inputs(other));
    auto what = difference(got, want, how);
    if (what.empty()) continue;
    // Is it as far from eager's as another order of the same operations may be? That is for the judges of
    // watched calls to say, of a program that gives the same to the bit.
    if (got.error.empty() && want.error.empty()) {
      const auto watched = graft::compile(function, options_of_cases);
      const auto judged = call([&](const Tensors& inputs) { return watched(inputs); }, one.inputs(other));
      if (judged.error.empty() && difference(got, judged, Compare::bits).empty() &&
          difference(judged, want, Compare::form).empty())
        continue;
      if (!judged.error.empty()) what += "; watched: " + judged.error;
    }
    return "wrong: call " + std::to_string(number + 1) + ": " + what;
  }
  const auto done = graft::counters();
  if (done.graph_breaks > 0 || done.graphs == 0) return "refused: " + reason_of_break(one, function);
  return done.extern_calls > 0 ? "external" : "passed";
}

/// A file of the folder, in memory as long as the process lives.
const char* mapped(const std::string& path) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  struct stat facts{};
  if (file < 0 || fstat(file, &facts) != 0) throw std::runtime_error("cannot open " + path);
  if (facts.st_size == 0) return nullptr;
  void* memory = mmap(nullptr, facts.st_size, PROT_READ, MAP_PRIVATE, file, 0);
  if (memory == MAP_FAILED) throw std::runtime_error("cannot map " + path);
  return static_cast<const char*>(memory);
}

/// In a process of its own. One line for each case, as soon as it is known.
[[noreturn]] void run_cases(const std::vector<std::string>& lines, size_t first, const char* memory,
                            int output) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  signal(SIGALRM, SIG_DFL);
  at::set_num_threads(1);
  for (size_t i = first; i < std::min(lines.size(), first + kCasesOfAProcess); ++i) {
    alarm(kSecondsForACase);
    std::string said;
    try {
      const auto text = json::parse(lines[i]);
      said = outcome(Case(text, memory));
    } catch (const std::exception& error) {
      said = "wrong: the driver: " + first_line(error.what());
    }
    said += '\n';
    if (write(output, said.data(), said.size()) != static_cast<ssize_t>(said.size())) _exit(2);
  }
  _exit(0);
}

/// How many lines came, each printed after its case's name.
size_t print_lines(const std::vector<std::string>& names, size_t first, int input) {
  size_t printed = 0;
  std::string line;
  for (char byte; read(input, &byte, 1) == 1;) {
    if (byte != '\n') {
      line += byte;
      continue;
    }
    std::cout << names[first + printed++] << '\t' << std::exchange(line, "") << std::endl;
  }
  return printed;
}

void run(const std::string& folder) {
  std::vector<std::string> lines, names;
  std::ifstream file(folder + "/cases.jsonl");
  for (std::string line; std::getline(file, line);) {
    names.push_back(json::parse(line)["id"]);
    lines.push_back(std::move(line));
  }
  const char* memory = mapped(folder + "/tensors.bin");
  for (size_t first = 0; first < lines.size();) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error("no pipe");
    const pid_t process = fork();
    if (process < 0) throw std::runtime_error("no process");
    if (process == 0) run_cases(lines, first, memory, ends[1]);
    close(ends[1]);
    first += print_lines(names, first, ends[0]);
    close(ends[0]);
    int status = 0;
    waitpid(process, &status, 0);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) continue;
    if (first == lines.size()) throw std::runtime_error("the process of the last cases crashed at its end");
    std::cout << names[first++] << "\tcrashed: "
              << (WIFSIGNALED(status) ? std::string(strsignal(WTERMSIG(status)))
                                      : "status " + std::to_string(WEXITSTATUS(status)))
              << std::endl;
  }
}

}  // namespace
}  // namespace graft::opinfo

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "see the top of its source\n";
    return 2;
  }
  try {
    graft::opinfo::run(argv[1]);
  } catch (const std::exception& error) {
    std::cerr << "opinfo_driver: " << error.what() << "\n";
    return 1;
  }
  return 0;
}
