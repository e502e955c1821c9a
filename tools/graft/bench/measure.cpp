#include "bench/measure.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <set>

#include "bench/child.h"
#include "bench/compare.h"
#include "command.h"
#include "support/remove_folder.h"

namespace graft::cli::bench {
namespace {

namespace fs = std::filesystem;

constexpr double kTurnSeconds = 0.3, kQuickTurnSeconds = 0.01;
constexpr int64_t kFewestCalls = 2, kMostCalls = 200;
// A first call that is over quickly is measured again, in a new process: one sample of a second says little.
constexpr int kStarts = 3;
constexpr double kQuickSeconds = 5;
constexpr const char* kLlamaCpp = "llama-cpp-python";

/// Whose results the others' must be.
const char* reference_name(const Settings& settings) {
  return settings.against_python ? "eager" : "graft eager";
}

/// One way to do a row's work.
struct Contender {
  std::string name, how;
  bool python = false;
  bool compiled = false;  ///< has a cache, so that its first call is cold or warm
  bool may_fail = false;  ///< it is no error that it cannot do the work
  bool compared = true;   ///< its results must be the eager one's
};

constexpr const char* kModes[] = {"reduce-overhead", "max-autotune"};

/// Those that the user asked for, and whoever says what the results must be.
std::vector<Contender> wanted_of(std::vector<Contender> all, const Settings& settings) {
  const auto& names = settings.contenders;
  if (names.empty()) return all;
  std::erase_if(all, [&](const Contender& who) {
    return who.name != reference_name(settings) && std::ranges::find(names, who.name) == names.end();
  });
  return all;
}

std::vector<Contender> contenders_of(const Row& row, const Settings& settings) {
  std::vector<Contender> all{{.name = "graft", .how = "graft", .compiled = true},
                             {.name = "graft eager", .how = "eager"}};
  if (row.modes)
    for (const std::string mode : kModes)
      all.push_back({.name = "graft " + mode, .how = mode, .compiled = true});
  if (settings.against_python) all.push_back({.name = "eager", .how = "eager", .python = true});
  if (settings.against_python && !settings.skip_compile) {
    // Loading an adapter is no work that a compiler has a part in.
    if (row.work != "load")
      all.push_back({.name = "compile",
                     .how = "compile",
                     .python = true,
                     .compiled = true,
                     .may_fail = row.adapters.any() || row.quick});
    if (row.modes)
      for (const std::string mode : kModes)
        all.push_back({.name = "compile " + mode,
                       .how = mode,
                       .python = true,
                       .compiled = true,
                       .may_fail = row.adapters.any()});
    if (row.is_model() && !row.modes && !row.adapters.any() && row.work != "generate" && row.work != "train")
      all.push_back({.name = "regional", .how = "regional", .python = true, .compiled = true});
  }
  if (settings.llama_cpp && row.work == "generate" && row.place.device == "cpu" && !row.place.half()) {
    all.push_back({.name = "llama.cpp", .how = "llama.cpp", .python = true});
    if (!row.model_file.empty())
      all.push_back({.name = "llama.cpp as is", .how = "llama.cpp as is", .python = true, .compared = false});
  }
  if (settings.against_python && row.modes && row.work == "forward" && !row.adapters.any())
    all.push_back({.name = "gemm", .how = "gemm", .python = true, .compared = false});
  if (row.bytes > 0) all.push_back({.name = "copy", .how = "copy", .compared = false});
  return all;
}

std::string text_of(double seconds) {
  char text[32];
  std::snprintf(text, sizeof text, seconds < 10 ? "%.3f s" : "%.1f s", seconds);
  return text;
}

std::shared_ptr<Child> start(const Settings& settings, const fs::path& folder, const Contender& who,
                             const fs::path& cache) {
  const std::vector<std::string> command =
      who.python ? std::vector<std::string>{settings.python, "-u", settings.peer}
                 : std::vector<std::string>{settings.program, "bench", "--worker"};
  const std::map<std::string, std::string> environment{{"OMP_NUM_THREADS", std::to_string(settings.threads)},
                                                       {"GRAFT_CACHE_DIR", cache.string()},
                                                       {"TORCHINDUCTOR_CACHE_DIR", cache.string()},
                                                       {"HF_HUB_OFFLINE", "1"},
                                                       {"TOKENIZERS_PARALLELISM", "false"}};
  return std::make_shared<Child>(who.name, command, environment, folder / (who.name + ".log"));
}

class RowRun {
 public:
  RowRun(const Row& row, const Settings& settings, KeptProcesses& kept, const Progress& progress)
      : row_(row),
        settings_(settings),
        kept_(kept),
        progress_(progress),
        folder_(settings.scratch / row.name),
        all_(wanted_of(contenders_of(row, settings), settings)) {
    fs::create_directories(folder_);
  }
  ~RowRun() {
    running_.clear();
    std::error_code none;
    remove_folder(folder_, none);
  }
  RowRun(const RowRun&) = delete;
  RowRun& operator=(const RowRun&) = delete;

  void get_ready() {
    make_files();
    // The eager one first: it says what the others' results must be.
    get_ready(reference());
    if (row_.alone) measure_alone();
    for (const auto& who : all_) {
      if (who.name == reference().name) continue;
      get_ready(who);
      if (row_.alone) measure_alone();
    }
  }

  /// Everybody once.
  void take_turns() {
    for (const auto& who : all_) {
      const auto child = running_.find(who.name);
      if (child == running_.end()) continue;
      try {
        const auto reply = child->second->ask({{"do", "run"}, {"calls", calls_[who.name]}});
        found_[who.name]["turns_ms"].push_back(reply.at("times_ms"));
      } catch (const Interrupted&) {
        throw;
      } catch (const Error& error) {
        drop(who, error);
      }
    }
  }

  ordered_json finish() {
    end_all();
    return result();
  }

 private:
  /// All turns of the one that is ready, which then leaves its memory to the next.
  void measure_alone() {
    for (int64_t round = 1; round <= settings_.rounds; ++round) take_turns();
    end_all();
  }

  void end_all() {
    for (auto& [name, child] : running_) {
      try {
        found_[name].update(child->ask({{"do", "facts"}}));
        end(*child);
      } catch (const Interrupted&) {
        throw;
      } catch (const Error& error) {
        found_[name]["error"] = error.what();
        kept_.erase(name);
      }
    }
    running_.clear();
  }

  /// A process for the row; for a quick one that of the row before, if there is one.
  std::shared_ptr<Child> start(const Contender& who, const fs::path& cache) {
    if (!row_.quick) return bench::start(settings_, folder_, who, cache);
    auto& child = kept_[who.name];
    if (!child) {
      auto name = who.name + "-cache";
      std::ranges::replace(name, ' ', '-');
      child = bench::start(settings_, settings_.scratch, who, settings_.scratch / name);
    }
    return child;
  }
  void end(Child& child) const {
    if (!row_.quick) child.quit();
  }

  const Contender& reference() const {
    return *std::ranges::find(all_, std::string(reference_name(settings_)), &Contender::name);
  }

  void say(const Contender& who, const std::string& what) const {
    progress_(row_.name + ": " + who.name + ": " + what);
  }

  fs::path outputs_of(const Contender& who) const { return folder_ / (who.name + ".safetensors"); }
  fs::path nudged(int i) const { return folder_ / ("nudged-" + std::to_string(i) + ".safetensors"); }

  /// Python writes the files where it takes part, as checkpoints come from transformers in life; else graft.
  void make_files() {
    const auto child = start(reference(), folder_ / "no-cache");
    child->ask({{"do", "make"},
                {"folder", folder_},
                {"config", row_.config},
                {"model_file", row_.model_file},
                {"inputs", row_.inputs},
                {"adapter", row_.adapters.config},
                {"adapters", row_.adapters.count},
                {"device", row_.place.device},
                {"dtype", row_.place.dtype}});
    end(*child);
  }

  /// A new process with the work loaded, and its first call done.
  std::shared_ptr<Child> first_call(const Contender& who, const fs::path& cache, const char* kind) {
    std::vector<std::string> names;
    for (const auto& [name, wanted] : row_.inputs.items()) names.push_back(name);
    auto child = start(who, cache);
    const auto& adapters = row_.adapters;
    child->ask({{"do", "load"},
                {"folder", folder_},
                {"work", row_.work},
                {"how", who.how},
                {"inputs", names},
                {"bytes", row_.bytes},
                {"adapter", adapters.config},
                {"adapters", adapters.count},
                {"state", adapters.state},
                {"loaded", adapters.loaded},
                {"new_tokens", row_.new_tokens},
                {"model_file", row_.model_file},
                {"device", row_.place.device},
                {"dtype", row_.place.dtype},
                {"trained", row_.trained},
                {"gradients", adapters.peft_gradients_right || !settings_.against_python}});
    const auto reply = child->ask({{"do", "first_call"}});
    const auto seconds = reply.at("seconds").get<double>();
    auto& found = found_[who.name];
    found["first_call_s"][kind].push_back(seconds);
    if (reply.contains("counters")) found["counters"][kind] = reply["counters"];
    if (!row_.quick || who.compiled) say(who, std::string(kind) + " first call " + text_of(seconds));
    return child;
  }

  /// First calls over caches that are empty, then over those they filled; the last process continues. Rows
  /// with adapters are many: theirs are cold only.
  std::shared_ptr<Child> first_calls(const Contender& who) {
    if (!who.compiled || row_.work == "load" || row_.quick)
      return first_call(who, folder_ / "no-cache", "cold");
    fs::path cache;
    const auto repeat = [&](const char* kind, const auto& body) {
      for (int64_t i = 0; i < std::min<int64_t>(kStarts, settings_.rounds); ++i) {
        body(i);
        if (found_[who.name]["first_call_s"][kind].back() > kQuickSeconds) return;
      }
    };
    std::shared_ptr<Child> last;
    const auto next_call = [&](const char* kind) {
      if (last) last->quit();
      last = first_call(who, cache, kind);
    };
    repeat("cold", [&](int64_t i) {
      // Without blanks: Inductor does not quote the path for its C++ compiler.
      auto name = who.name + "-cache-" + std::to_string(i);
      std::ranges::replace(name, ' ', '-');
      cache = folder_ / name;
      next_call("cold");
    });
    if (!row_.adapters.any()) repeat("warm", [&](int64_t) { next_call("warm"); });
    return last;
  }

  void get_ready(const Contender& who) {
    try {
      auto child = first_calls(who);
      // The second call is graft's second check; what is compared and timed comes after it.
      child->ask({{"do", "run"}, {"calls", 1}});
      child->ask({{"do", "outputs"}, {"path", outputs_of(who)}});
      if (&who == &reference()) measure_noise(*child);
      if (who.compared) check_results(who);
      const auto once = child->ask({{"do", "run"}, {"calls", 1}}).at("times_ms")[0].get<double>() / 1e3;
      const double turn = row_.quick ? kQuickTurnSeconds : kTurnSeconds;
      calls_[who.name] = std::clamp(static_cast<int64_t>(std::ceil(turn / once)), kFewestCalls, kMostCalls);
      running_[who.name] = std::move(child);
    } catch (const Interrupted&) {
      throw;
    } catch (const Error& error) {
      drop(who, error);
    }
  }

  void drop(const Contender& who, const Error& error) {
    found_[who.name][who.may_fail ? "cannot" : "error"] = error.what();
    running_.erase(who.name);
    kept_.erase(who.name);
    const std::string why = error.what();
    say(who, "failed: " + why.substr(0, why.find('\n')));
  }

  /// How far results move when nobody computes anything else: at ReLU's kink a rounding decides whether a
  /// gradient passes, and eager itself then lies per cents from the same in double precision.
  void measure_noise(Child& child) {
    constexpr int kNudges = 3;
    if (row_.work != "backward") return;
    for (int i = 0; i < kNudges; ++i) {
      child.ask({{"do", "nudge"}});
      child.ask({{"do", "outputs"}, {"path", nudged(i)}});
      noise_ = std::max(noise_, gradient_distance(nudged(i), outputs_of(reference())));
    }
  }

  void check_results(const Contender& who) {
    const auto& right = reference().name;
    if (found_[right].contains("error"))
      throw Error("[bench] " + right + " failed, so that nothing says what the result should be");
    const auto why = difference(outputs_of(who), outputs_of(reference()), row_.tolerance, noise_);
    if (!why.empty())
      throw Error("[bench] " + who.name + " and " + right + " do not compute the same: " + why);
  }

  ordered_json result() const {
    ordered_json contenders = ordered_json::object();
    for (const auto& who : all_)
      if (const auto found = found_.find(who.name); found != found_.end())
        contenders[who.name] = found->second;
    ordered_json found{{"name", row_.name},           {"work", row_.work},
                       {"bytes", row_.bytes},         {"tokens", tokens_of(row_)},
                       {"device", row_.place.device}, {"dtype", row_.place.dtype},
                       {"quick", row_.quick}};
    if (row_.adapters.any())
      found["adapters"] = {{"count", row_.adapters.count}, {"state", row_.adapters.state}};
    found["contenders"] = contenders;
    return found;
  }

  const Row& row_;
  const Settings& settings_;
  KeptProcesses& kept_;
  const Progress& progress_;
  fs::path folder_;
  std::vector<Contender> all_;
  std::map<std::string, ordered_json> found_;
  std::map<std::string, std::shared_ptr<Child>> running_;
  std::map<std::string, int64_t> calls_;
  double noise_ = 0;
};

}  // namespace

void check_contenders(const std::vector<Row>& rows, const Settings& settings) {
  std::set<std::string> known;
  for (const auto& row : rows)
    for (const auto& who : contenders_of(row, settings)) known.insert(who.name);
  std::string listed;
  for (const auto& name : known) listed += (listed.empty() ? "\"" : ", \"") + name + "\"";
  for (const auto& name : settings.contenders)
    if (!known.contains(name))
      throw WrongUsage("--contenders \"" + name + "\" is in none of these rows, which have " + listed);
}

bool has_llama_cpp(const ordered_json& versions) {
  return versions.contains(kLlamaCpp) && versions.at(kLlamaCpp).is_string();
}

ordered_json prepare_python(const Settings& settings, const Needs& needs) {
  const auto log = settings.scratch / "python.log";
  Child child("python", {settings.python, settings.peer},
              {{"TORCHINDUCTOR_CACHE_DIR", (settings.scratch / "prepare-cache").string()}}, log);
  for (const auto& [package, version] : child.versions().items()) {
    if (package == kLlamaCpp) continue;  // is measured where it is
    const bool needed =
        package == "torch" || package == "safetensors" || (package == "peft" ? needs.adapters : needs.models);
    if (needed && version.is_null())
      throw Error("[bench] " + settings.python.string() + " has no " + package +
                  ": install requirements.txt there, or name another interpreter with --python");
  }
  if (!settings.skip_compile) child.ask({{"do", "prepare"}});
  auto versions = child.versions();
  child.quit();
  return versions;
}

std::vector<ordered_json> measure(const std::vector<Row>& together, const Settings& settings,
                                  KeptProcesses& kept, const Progress& progress) {
  std::vector<std::unique_ptr<RowRun>> runs;
  for (const auto& row : together) {
    runs.push_back(std::make_unique<RowRun>(row, settings, kept, progress));
    runs.back()->get_ready();
  }
  for (int64_t round = 1; round <= settings.rounds; ++round) {
    for (const auto& run : runs) run->take_turns();
    if (!together.front().quick)
      progress("round " + std::to_string(round) + " of " + std::to_string(settings.rounds));
  }
  std::vector<ordered_json> found;
  found.reserve(runs.size());
  for (const auto& run : runs) found.push_back(run->finish());
  return found;
}

}  // namespace graft::cli::bench
