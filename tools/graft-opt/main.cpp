// graft-opt: passes over graphs in text. Exit status: 0 done, 1 an error in the graph or the work, 2 wrong
// usage.
#include <CLI/CLI.hpp>
#include <fstream>
#include <iostream>
#include <iterator>

#include "compiler/lower.h"
#include "graft/error.h"
#include "graft/version.h"
#include "ir/parser.h"
#include "ir/verifier.h"
#include "passes/pipeline.h"
#include "targets/targets.h"

namespace {

using graft::passes::Pass;

constexpr int failed = 1, wrong_usage = 2;

struct Flags {
  std::string file = "-", pipeline, emit = "aten";
  std::vector<std::string> passes;
  bool verify_only = false, list_passes = false;
};

int fail(const std::string& where, std::string_view message) {
  std::cerr << "graft-opt: " << (where.empty() ? "" : where + ": ") << message << "\n";
  return failed;
}

/// The passes of the compiler, by when they run; those that depend on the target as for this one.
std::vector<Pass> pipeline_named(const std::string& name, const graft::Target& target) {
  if (name == "joint") return graft::passes::joint_passes();
  return name == "joint-kernels" ? graft::passes::joint_kernel_passes() : graft::passes_for(target);
}

const std::vector<std::string> pipelines = {"joint", "joint-kernels", "compile"};

void list_passes() {
  for (const auto& name : pipelines) {
    std::cout << name << ":\n";
    for (const auto& pass : pipeline_named(name, graft::target_for({})))
      std::cout << "  " << pass.name << "\n";
  }
}

std::vector<std::string> pass_names() {
  return {graft::passes::pass_names().begin(), graft::passes::pass_names().end()};
}

std::string read(const std::string& file) {
  if (file == "-") return {std::istreambuf_iterator<char>(std::cin), {}};
  std::ifstream in(file, std::ios::binary);
  if (!in) throw graft::Error("cannot be read");
  return {std::istreambuf_iterator<char>(in), {}};
}

/// With passes named, those alone; else, for what lies behind the graph, those the compiler runs.
void run_passes(const Flags& flags, const graft::Target& target, graft::ir::Graph& graph) {
  if (!flags.pipeline.empty())
    return graft::passes::run_passes(pipeline_named(flags.pipeline, target), graph);
  const auto all = pipeline_named("compile", target);
  if (flags.passes.empty() && flags.emit != "aten") return graft::passes::run_passes(all, graph);
  for (const auto& name : flags.passes)
    for (const auto& pass : all)
      if (pass.name == name) {
        graft::passes::run_pass(pass, graph);
        break;
      }
}

int run(const Flags& flags) {
  if (flags.list_passes) {
    list_passes();
    return 0;
  }
  const std::string where = flags.file == "-" ? "standard input" : flags.file;
  try {
    auto graph = graft::ir::parse(read(flags.file));
    graft::ir::verify(graph);
    if (flags.verify_only) return 0;
    const bool needs_target = flags.emit != "aten" || !flags.passes.empty() || !flags.pipeline.empty();
    if (!needs_target) {
      std::cout << graft::ir::to_string(graph);
    } else {
      const auto& target = graft::target_of(graph);
      run_passes(flags, target, graph);
      std::cout << (flags.emit == "aten"
                        ? graft::ir::to_string(graph)
                        : graft::emit(graft::lower_core(std::move(graph), target), target, flags.emit));
    }
    return std::cout.flush() ? 0 : fail("", "the output cannot be written");
  } catch (const std::exception& error) {
    return fail(where, error.what());
  }
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"Runs passes of the compiler over a graph in text and prints what comes out.", "graft-opt"};
  app.footer(
      "Without --pass and --pipeline the graph is printed as it was read; with --emit of a later level the "
      "compiler's\n"
      "own passes run first.\n\n"
      "Example:\n"
      "  graft-opt --pass decompose --pass dead-code graph.txt\n"
      "  graft explain --model DIR --input in.safetensors --emit aten | sed -n '/^graph(/,/^}/p' | graft-opt "
      "--emit loops");
  app.set_version_flag("--version", graft::build_summary());
  Flags flags;
  app.add_option("file", flags.file, "Graph in text; - or nothing: standard input");
  auto* passes = app.add_option("--pass", flags.passes, "Run this pass; may be given several times")
                     ->allow_extra_args(false);
  passes->check(CLI::IsMember(pass_names()));
  app.add_option("--pipeline", flags.pipeline,
                 "Run all passes of: joint, joint-kernels (before forward and backward are parted), compile")
      ->check(CLI::IsMember(pipelines))
      ->excludes(passes);
  app.add_option("--emit", flags.emit,
                 "Level to print: the graph (aten, core), kernels (fused), their loops, their code")
      ->check(CLI::IsMember(graft::emit_levels()));
  app.add_flag("--verify-only", flags.verify_only, "Read and check the graph, print nothing");
  app.add_flag("--list-passes", flags.list_passes, "Print the passes, in the order in which they run");
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& asked) {  // --help, --version
    return app.exit(asked);
  } catch (const CLI::ParseError& error) {
    app.exit(error, std::cout, std::cerr);
    return wrong_usage;
  }
  return run(flags);
}
