#include "train/run_folder.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <variant>

#include "graft/error.h"
#include "io/format/atomic_file.h"
#include "io/format/io_error.h"
#include "io/format/json.h"
#include "io/format/mapped_file.h"
#include "support/counted.h"
#include "support/hash.h"
#include "support/log.h"
#include "support/remove_folder.h"
#include "train/whole_folder.h"

namespace graft::train {
namespace fs = std::filesystem;
using nlohmann::json;
using nlohmann::ordered_json;

namespace {

constexpr const char* kPrefix = "checkpoint-";
constexpr const char* kUnfinished = ".unfinished-checkpoint-";
constexpr const char* kState = "trainer_state.json";
constexpr const char* kPage = "report.html";

/// JSON has no number for these, which a loss or a perplexity may be: they are text there.
constexpr const char *not_a_number = "NaN", *infinity = "Infinity", *minus_infinity = "-Infinity";

ordered_json json_of(double value) {
  if (std::isfinite(value)) return value;
  return std::isnan(value) ? not_a_number : value > 0 ? infinity : minus_infinity;
}

/// The names in log_history are transformers' own.
ordered_json to_json(const TrainingStep& step) {
  ordered_json line{{"step", step.step},
                    {"epoch", step.epoch},
                    {"loss", json_of(step.loss)},
                    {"learning_rate", step.learning_rate}};
  if (step.grad_norm) line["grad_norm"] = json_of(*step.grad_norm);
  line["tokens"] = step.tokens;
  line["seconds"] = step.seconds;
  line["compute_seconds"] = step.compute_seconds;
  if (step.skipped) line["skipped"] = true;
  if (step.eval) {
    line["eval_loss"] = json_of(step.eval->loss);
    if (step.eval->perplexity) line["eval_perplexity"] = json_of(*step.eval->perplexity);
    if (step.eval->accuracy) line["eval_accuracy"] = *step.eval->accuracy;
    line["eval_items"] = step.eval->items;
  }
  return line;
}

double number_in(const json& value) {
  if (value.is_number()) return value.get<double>();
  // Null is what older versions wrote for all three.
  if (value == not_a_number) return std::numeric_limits<double>::quiet_NaN();
  return (value == minus_infinity ? -1 : 1) * std::numeric_limits<double>::infinity();
}

TrainingStep from_json(const json& line, int64_t max_steps) {
  TrainingStep step{.step = line.at("step"),
                    .max_steps = max_steps,
                    .epoch = line.at("epoch"),
                    .loss = number_in(line.at("loss")),
                    .learning_rate = line.at("learning_rate"),
                    .tokens = line.at("tokens"),
                    .seconds = line.at("seconds"),
                    .compute_seconds = line.value("compute_seconds", 0.0)};
  const auto number = [&](const char* name) {
    return line.contains(name) ? std::optional(number_in(line[name])) : std::nullopt;
  };
  step.grad_norm = number("grad_norm");
  step.skipped = line.value("skipped", false);
  if (const auto loss = number("eval_loss"))
    step.eval = EvalMetrics{.loss = *loss,
                            .perplexity = number("eval_perplexity"),
                            .accuracy = number("eval_accuracy"),
                            .items = line.at("eval_items")};
  return step;
}

/// A field of trainer_state.json, and what it holds.
struct StateField {
  const char* name;
  bool (*fits)(const json&);
  const char* kind;
};

bool is_count(const json& value) { return value.is_number_unsigned(); }
bool is_number(const json& value) {
  return value.is_number() || value.is_null() || value == not_a_number || value == infinity ||
         value == minus_infinity;
}
bool is_object(const json& value) { return value.is_object(); }
bool is_list(const json& value) { return value.is_array(); }

/// What is wrong with the first field that does not hold what it should; empty: nothing.
std::string wrong_field(const json& object, const std::vector<StateField>& fields) {
  for (const auto& [name, fits, kind] : fields) {
    const auto found = object.find(name);
    if (found == object.end()) return "has no \"" + std::string(name) + '"';
    if (!fits(*found)) return "has a \"" + std::string(name) + "\" that is not " + kind;
  }
  return "";
}

/// Why trainer_state.json is none that graft has written; empty: it is.
std::string wrong_state(const json& state) {
  if (!state.is_object()) return "holds no JSON object";
  static const std::vector<StateField> fields{{"files", is_object, "a list of files with their sizes"},
                                              {"global_step", is_count, "a number of steps"},
                                              {"max_steps", is_count, "a number of steps"},
                                              {"arguments", is_object, "an object"},
                                              {"log_history", is_list, "a list"}};
  static const std::vector<StateField> of_step{{"step", is_count, "the number of a step"},
                                               {"epoch", is_number, "a number"},
                                               {"loss", is_number, "a number"},
                                               {"learning_rate", is_number, "a number"},
                                               {"tokens", is_count, "a count"},
                                               {"seconds", is_number, "a number"}};
  if (auto wrong = wrong_field(state, fields); !wrong.empty()) return wrong;
  for (const auto& [name, bytes] : state["files"].items())
    if (!is_count(bytes)) return "has no size for " + name;
  for (const auto& line : state["log_history"]) {
    if (!line.is_object()) return "has a step in \"log_history\" that is not an object";
    if (auto wrong = wrong_field(line, of_step); !wrong.empty())
      return "has a step in \"log_history\" that " + wrong;
  }
  return "";
}

std::string hash_of(const fs::path& path) {
  const io::MappedFile file(path);
  return hex(
      hash128({std::string_view(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size())}));
}

/// The checkpoint, if all of it is there; else why not.
std::variant<SavedRun, std::string> read(const fs::path& dir, int64_t number) {
  const auto not_ours = [](const std::string& what) {
    return std::string(kState) + " " + what + ": it is not as graft wrote it";
  };
  try {
    if (!fs::exists(dir / kState)) return std::string(kState) + " is missing";
    const auto state = io::read_json_file(dir / kState);
    if (const auto wrong = wrong_state(state); !wrong.empty()) return not_ours(wrong);
    for (const auto& [name, bytes] : state["files"].items()) {
      std::error_code error;
      if (const auto size = fs::file_size(dir / name, error); error || size != bytes.get<uint64_t>())
        return name + " is missing or incomplete";
    }
    const auto hashes = state.value("hashes", json::object());  // older versions wrote none
    for (const auto& [name, hash] : hashes.items())
      if (hash != hash_of(dir / name)) return name + " is damaged: it is not what was written";
    SavedRun run{dir, state.at("global_step"), {}, {state.value("base_model", ""), state.at("arguments")}};
    if (run.global_step != number) return "it says that it is of another step";
    if (state["log_history"].size() != static_cast<size_t>(run.global_step))
      return not_ours("has " + counted(static_cast<int64_t>(state["log_history"].size()), "step") +
                      " in \"log_history\"");
    for (const auto& line : state.at("log_history"))
      run.log.push_back(from_json(line, state.at("max_steps")));
    return run;
  } catch (const Error& error) {
    return std::string(error.what());
  } catch (const json::exception&) {
    return not_ours("has values of other kinds");
  }
}

/// Never seen half-removed under its name.
void remove_checkpoint(const fs::path& dir) {
  const auto aside = dir.parent_path() / (kUnfinished + dir.filename().string());
  std::error_code error;
  remove_folder(aside, error);
  fs::rename(dir, aside, error);
  if (!error) remove_folder(aside, error);
  if (error) log_warning("[train] cannot remove " + dir.string() + ": " + error.message());
}

}  // namespace

RunFolder::RunFolder(fs::path dir, bool writes) : dir_(std::move(dir)) {
  if (!writes) return;
  lock_ = io::FolderLock::take(dir_);
  std::error_code error;
  std::vector<fs::path> left;
  for (fs::directory_iterator at(dir_, error), end; !error && at != end; at.increment(error))
    if (at->path().filename().string().starts_with(kUnfinished)) left.push_back(at->path());
  for (const auto& path : left) remove_folder(path, error);
}

std::vector<std::pair<int64_t, fs::path>> RunFolder::checkpoints() const {
  std::vector<std::pair<int64_t, fs::path>> found;
  std::error_code error;
  for (fs::directory_iterator at(dir_, error), end; !error && at != end; at.increment(error)) {
    const auto name = at->path().filename().string();
    if (!name.starts_with(kPrefix) || !at->is_directory(error)) continue;
    int64_t number = 0;
    const auto* first = name.data() + std::string_view(kPrefix).size();
    const auto* last = name.data() + name.size();
    const auto [stop, code] = std::from_chars(first, last, number);
    if (code == std::errc() && stop == last && number > 0) found.emplace_back(number, at->path());
  }
  std::sort(found.begin(), found.end());
  return found;
}

std::optional<SavedRun> RunFolder::last() const {
  auto all = checkpoints();
  std::vector<std::pair<fs::path, std::string>> broken;
  for (auto at = all.rbegin(); at != all.rend(); ++at) {
    auto run = read(at->second, at->first);
    if (auto* whole = std::get_if<SavedRun>(&run)) {
      for (const auto& [path, why] : broken)
        log_warning("[train] " + path.string() + " is not whole and is passed over: " + why);
      return std::move(*whole);
    }
    broken.emplace_back(at->second, std::get<std::string>(run));
  }
  if (broken.empty()) return {};
  std::string listed;
  for (const auto& [path, why] : broken) listed += "; " + path.filename().string() + ": " + why;
  throw Error("[train] no checkpoint in " + dir_.string() + " is whole" + listed +
              ". Bring a whole one back, or remove them to begin at the first step");
}

void RunFolder::save(int64_t step, const std::vector<TrainingStep>& log, const RunIdentity& identity,
                     const std::function<void(const fs::path&)>& write) const {
  const auto name = std::to_string(step);
  const auto unfinished = dir_ / (kUnfinished + name), whole = dir_ / (kPrefix + name);
  write_whole_folder(unfinished, whole, [&](const fs::path& folder) {
    write(folder);
    ordered_json state{{"global_step", step},
                       {"max_steps", log.empty() ? 0 : log.back().max_steps},
                       {"epoch", log.empty() ? 0.0 : log.back().epoch},
                       {"base_model", identity.base},
                       {"arguments", identity.arguments},
                       {"files", ordered_json::object()},
                       {"hashes", ordered_json::object()}};
    for (const auto& entry : fs::recursive_directory_iterator(folder)) {
      if (!entry.is_regular_file()) continue;
      const auto file = fs::relative(entry.path(), folder).string();
      state["files"][file] = entry.file_size();
      state["hashes"][file] = hash_of(entry.path());
    }
    state["log_history"] = ordered_json::array();
    for (const auto& each : log) state["log_history"].push_back(to_json(each));
    io::write_file_atomically(folder / kState, state.dump(1) + "\n");
  });
}

void RunFolder::keep_last(int64_t limit, std::optional<int64_t> best) const {
  const auto all = checkpoints();
  for (size_t i = 0; i + static_cast<size_t>(limit) < all.size(); ++i)
    if (all[i].first != best) remove_checkpoint(all[i].second);
}

fs::path RunFolder::checkpoint(int64_t step) const { return dir_ / (kPrefix + std::to_string(step)); }

std::string RunFolder::trouble_with(int64_t step) const {
  const auto dir = checkpoint(step);
  if (std::error_code error; !fs::exists(dir, error)) return "it is missing";
  const auto found = read(dir, step);
  const auto* why = std::get_if<std::string>(&found);
  return why ? *why : "";
}

void RunFolder::begin_metrics(const std::vector<TrainingStep>& log) {
  std::error_code error;
  if (fs::is_directory(dir_ / kPage, error))  // now, not when all is trained
    throw IoError("[train] " + (dir_ / kPage).string() +
                  " is a folder, and a report is to be written there: "
                  "move it away");
  const auto path = dir_ / "metrics.jsonl";
  std::string text;
  for (const auto& step : log) text += to_json(step).dump() + "\n";
  io::write_file_atomically(path, text);
  metrics_ = io::AppendFile(path);
  events_.emplace(dir_ / "runs");
}

void RunFolder::add_metrics(const TrainingStep& step) {
  metrics_.add(to_json(step).dump() + "\n");
  // The names are those that transformers' Trainer gives them.
  std::vector<std::pair<std::string, double>> scalars{
      {"train/loss", step.loss}, {"train/learning_rate", step.learning_rate}, {"train/epoch", step.epoch}};
  if (step.grad_norm) scalars.emplace_back("train/grad_norm", *step.grad_norm);
  if (step.seconds > 0)
    scalars.emplace_back("train/tokens_per_second", static_cast<double>(step.tokens) / step.seconds);
  if (step.eval) {
    scalars.emplace_back("eval/loss", step.eval->loss);
    if (step.eval->accuracy) scalars.emplace_back("eval/accuracy", *step.eval->accuracy);
  }
  if (events_) events_->add(step.step, scalars);
}

void RunFolder::write_page(const std::string& html) const { io::write_file_atomically(dir_ / kPage, html); }

}  // namespace graft::train
