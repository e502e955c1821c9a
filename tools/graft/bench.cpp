// graft bench: graft against Python over the same files on the same machine, in one run.
#include <sys/sysinfo.h>
#include <sys/utsname.h>

#include <algorithm>
#include <cctype>
#include <chrono>
#include <cstring>
#include <ctime>
#include <fstream>
#include <iostream>
#include <map>
#include <thread>

#include "bench/child.h"
#include "bench/device.h"
#include "bench/html.h"
#include "bench/measure.h"
#include "bench/results_chart.h"
#include "bench/statistics.h"
#include "bench/suites.h"
#include "bench/tables.h"
#include "bench/worker.h"
#include "command.h"
#include "graft/version.h"
#include "io/format/atomic_file.h"
#include "output_folder.h"
#include "support/remove_folder.h"

namespace graft::cli {
namespace {

using namespace bench;
namespace fs = std::filesystem;

struct BenchFlags {
  std::string suite = "cpu", against, html, json, python, model, chart, device;
  std::vector<std::string> only, contenders, files;
  int64_t rounds = 10, threads = 0;
  bool skip_compile = false, list = false, worker = false, tiny = false;
};

/// A folder of its own, gone when the run is over.
class ScratchFolder {
 public:
  ScratchFolder() {
    auto name = (fs::temp_directory_path() / "graft-bench-XXXXXX").string();
    if (!::mkdtemp(name.data())) throw Error("[bench] cannot make a folder like " + name);
    path_ = name;
  }
  ~ScratchFolder() {
    std::error_code none;
    remove_folder(path_, none);
  }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

fs::path own_program() { return fs::read_symlink("/proc/self/exe"); }

/// `name` in the folder of the program or one above it: a build folder lies in the source tree.
fs::path above_program(const fs::path& name) {
  auto folder = own_program().parent_path();
  for (int level = 0; level < 3; ++level, folder = folder.parent_path())
    if (fs::exists(folder / name)) return folder / name;
  return {};
}

/// x86 has the name in words, Arm numbers of the maker and the part.
std::string processor() {
  std::map<std::string, std::string> fields;
  std::ifstream lines("/proc/cpuinfo");
  for (std::string line; std::getline(lines, line);)
    if (const auto colon = line.find(": "); colon != std::string::npos)
      fields.emplace(line.substr(0, line.find_first_of("\t:")), line.substr(colon + 2));
  if (fields.contains("model name")) return fields["model name"];
  utsname system{};
  ::uname(&system);
  return std::string(system.machine) + " implementer " + fields["CPU implementer"] + " part " +
         fields["CPU part"];
}

ordered_json machine() {
  double load = 0;
  ::getloadavg(&load, 1);
  struct sysinfo info{};
  ::sysinfo(&info);
  return {{"processor", processor()},
          {"cores", std::thread::hardware_concurrency()},
          {"memory_bytes", static_cast<uint64_t>(info.totalram) * info.mem_unit},
          {"gpus", gpu_names()},
          {"load_average", load}};
}

std::string now() {
  const auto time = std::time(nullptr);
  std::tm parts{};
  ::gmtime_r(&time, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

/// A word as a shell reads it.
std::string shell_word(const std::string& word) {
  const bool plain = !word.empty() && std::all_of(word.begin(), word.end(), [](unsigned char c) {
    return std::isalnum(c) || std::strchr("_./,:=+@%-", c);
  });
  if (plain) return word;
  std::string quoted = "'";
  for (const char c : word) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

/// What was asked for, without the folder that the program is in.
std::string command_line() {
  std::ifstream words("/proc/self/cmdline", std::ios::binary);
  std::string text = "graft", word;
  std::getline(words, word, '\0');
  while (std::getline(words, word, '\0')) text += " " + shell_word(word);
  return text;
}

Settings settings_of(const BenchFlags& flags, const fs::path& scratch) {
  Settings settings{.rounds = flags.rounds,
                    .threads = flags.threads > 0 ? flags.threads : std::thread::hardware_concurrency(),
                    .against_python = flags.against == "python",
                    .skip_compile = flags.skip_compile,
                    .contenders = flags.contenders,
                    .program = own_program(),
                    .python = flags.python,
                    .peer = above_program(fs::path("bench") / "peer.py"),
                    .scratch = scratch};
  if (settings.python.empty()) settings.python = above_program(fs::path(".venv") / "bin" / "python");
  if (settings.python.empty()) settings.python = "python3";
  if (settings.against_python && settings.peer.empty())
    throw Error(
        "[bench] --against python needs bench/peer.py of graft's sources: run graft from its build folder");
  return settings;
}

int64_t errors_in(const ordered_json& document) {
  int64_t count = 0;
  for (const auto& row : document["rows"])
    for (const auto& [name, found] : row["contenders"].items()) count += found.contains("error") ? 1 : 0;
  return count;
}

Needs needs_of(const std::vector<Row>& rows) {
  return {
      .models = std::any_of(rows.begin(), rows.end(), [](const Row& row) { return row.is_model(); }),
      .adapters = std::any_of(rows.begin(), rows.end(), [](const Row& row) { return row.adapters.any(); })};
}

/// Names for people; with --json also what each row is.
void list(const std::vector<Row>& rows, const BenchFlags& flags) {
  auto all = ordered_json::array();
  for (const auto& row : rows) {
    std::cout << row.name << "\n";
    all.push_back(description(row));
  }
  if (!flags.json.empty()) io::write_file_atomically(flags.json, all.dump(1) + "\n");
}

void draw(const BenchFlags& flags) {
  if (flags.chart.empty()) throw WrongUsage("results are read for a picture: give --chart OUT.svg, too");
  if (flags.files.empty())
    throw WrongUsage("--chart draws results: give files that `graft bench --json` wrote, before --only");
  refuse_unwritable({{"--chart", flags.chart}}, {flags.files.begin(), flags.files.end()});
  std::vector<ordered_json> documents;
  documents.reserve(flags.files.size());
  for (const auto& file : flags.files) documents.push_back(read_results(file));
  io::write_file_atomically(flags.chart, results_svg(documents, flags.only));
}

void run(const BenchFlags& flags) {
  if (flags.worker) return serve();
  if (!flags.chart.empty() || !flags.files.empty()) return draw(flags);
  const auto rows = chosen(suite_named(flags.suite, flags.tiny, flags.model, flags.device), flags.only);
  // Not after an hour of measuring.
  refuse_unwritable({{"--html", flags.html}, {"--json", flags.json}});
  if (flags.list) return list(rows, flags);
  for (const auto& row : rows) require_device(row.place.device);
  const InterruptGuard guard;
  const ScratchFolder scratch;
  auto settings = settings_of(flags, scratch.path());

  ordered_json document{
      {"graft", build_summary()}, {"suite", flags.suite},        {"command", command_line()}, {"date", now()},
      {"machine", machine()},     {"threads", settings.threads}, {"rounds", settings.rounds}};
  if (settings.against_python) {
    const auto versions = prepare_python(settings, needs_of(rows));
    settings.llama_cpp = has_llama_cpp(versions);
    document["python"] = versions;
  }
  check_contenders(rows, settings);
  document["rows"] = ordered_json::array();
  const auto write_files = [&] {
    if (!flags.json.empty())
      io::write_file_atomically(flags.json,
                                document.dump(1, ' ', false, ordered_json::error_handler_t::replace) + "\n");
    if (!flags.html.empty()) io::write_file_atomically(flags.html, html_of(document));
  };
  KeptProcesses kept;
  auto written = std::chrono::steady_clock::now();
  for (const auto& together : grouped(rows)) {
    const auto done = document["rows"].size();
    const auto where =
        "[" + std::to_string(done + together.size()) + "/" + std::to_string(rows.size()) + "] ";
    auto measured =
        measure(together, settings, kept, [&](const std::string& what) { std::cerr << where + what + "\n"; });
    for (size_t i = 0; i < together.size(); ++i) {
      add_statistics(together[i], measured[i]);
      add_over(together[i], document["rows"], measured[i]);
      document["rows"].push_back(measured[i]);
    }
    // While it goes on: whoever stops a long run keeps what there is. Rows of milliseconds need not be
    // written one by one: the files are as long as all rows before.
    if (together.front().quick && std::chrono::steady_clock::now() - written < std::chrono::seconds(10))
      continue;
    write_files();
    written = std::chrono::steady_clock::now();
  }
  kept.clear();
  write_files();
  std::cout << text_of(document) << std::flush;
  if (const auto errors = errors_in(document); errors > 0)
    throw Error("[bench] " + std::to_string(errors) + " measurements failed; the table says which");
}

}  // namespace

void add_bench(CLI::App& app) {
  auto* command = app.add_subcommand("bench", "Measure graft, alone or against Python, on this machine");
  auto flags = std::make_shared<BenchFlags>();
  command->add_option("--suite", flags->suite, "Measure this suite: cpu, ops, gpu, adapters, decode or train")
      ->capture_default_str();
  command
      ->add_option(
          "--against", flags->against,
          "Compare with python: transformers or PEFT eager, torch.compile, and it by regions; for the suite "
          "decode llama.cpp, where llama-cpp-python is")
      ->check(CLI::IsMember({"python"}));
  command
      ->add_option("--only", flags->only,
                   "Measure only these rows: names, or beginnings of names up to a dash")
      ->delimiter(',');
  command
      ->add_option(
          "--contenders", flags->contenders,
          "Measure only these, by their names in the table, and the eager one that results are compared with")
      ->delimiter(',');
  command
      ->add_option("--device", flags->device,
                   "Run the models of the suites adapters, decode and train on this device: cpu or cuda "
                   "(default: cpu)")
      ->check(CLI::IsMember({"cpu", "cuda"}));
  command->add_option("--rounds", flags->rounds, "Give each contender N turns")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_option("--threads", flags->threads, "Use N threads for each contender (default: all cores)")
      ->check(CLI::PositiveNumber);
  command->add_flag("--skip-compile", flags->skip_compile,
                    "Leave out torch.compile, which takes a minute or two for each row");
  command->add_option("--html", flags->html, "Write a page with plots to this file");
  command->add_option("--json", flags->json, "Write everything measured to this file, every single call");
  command->add_option(
      "--chart", flags->chart,
      "Draw an SVG of result files, and measure nothing: first calls and steady state of the "
      "rows (--only chooses) that have torch.compile's times, and what a switch of adapters costs");
  command->add_option("results", flags->files, "Files that --json wrote, for --chart");
  command->add_option("--python", flags->python,
                      "Use this interpreter (default: .venv of the source tree, else python3)");
  command
      ->add_option(
          "--model", flags->model,
          "Take the weights of this GGUF file for the suite decode, in float32 (default: random ones)")
      ->check(CLI::ExistingFile);
  command->add_flag(
      "--tiny", flags->tiny,
      "Use models of no size: for tests of the harness, not for figures (all suites but cpu and ops)");
  command->add_flag("--list", flags->list,
                    "Print the names of the rows and measure nothing; --json then writes what each row is");
  command->add_flag("--worker", flags->worker, "For graft itself: be the process that is measured")
      ->group("");
  command->footer(
      "Example:\n  graft bench --against python --only llama6 --html report.html\n  graft bench --chart "
      "bench.svg cpu.json adapters.json --only llama6-forward\n  graft bench --suite gpu --against python "
      "--only 1b-forward --html gpu.html\n  graft bench --suite ops --only "
      "softmax,layer_norm-bfloat16\n\nBoth sides read the same "
      "files, "
      "in processes of their own that take turns. docs/benchmarks.md says how to read the table.");
  command->callback([flags] { run(*flags); });
}

}  // namespace graft::cli
