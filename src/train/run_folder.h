// What a run keeps in its output folder: checkpoint-N/, metrics.jsonl, runs/ for TensorBoard, report.html.
//
// A checkpoint is made in a folder of another name and renamed when all of it is on disk, so that whatever is
// called checkpoint-N is whole; trainer_state.json, written last, lists the files with their sizes and
// hashes, so that a copy of a checkpoint that is not whole, or a file that a power cut has left as zeros, is
// found out, too.
#pragma once
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>

#include "graft/trainer.h"
#include "io/format/append_file.h"
#include "io/format/event_file.h"
#include "io/format/folder_lock.h"

namespace graft::train {

/// What a run is of; kept with its checkpoints.
struct RunIdentity {
  std::string base;  ///< base_fingerprint()
  nlohmann::json arguments;
};

struct SavedRun {
  std::filesystem::path dir;
  int64_t global_step = 0;
  std::vector<TrainingStep> log;
  RunIdentity identity;  ///< of the run that wrote it
};

class RunFolder {
 public:
  /// Creates it, locks it against other runs, and removes what a killed run left half-written; one who only
  /// looks does nothing of that.
  explicit RunFolder(std::filesystem::path dir, bool writes = true);

  /// The last whole checkpoint, none where there are no checkpoints; later ones that are not whole are passed
  /// over with a warning. Error that says what is wrong with each where there are some and none is whole.
  std::optional<SavedRun> last() const;
  bool has_checkpoints() const { return !checkpoints().empty(); }
  /// `write` puts the tensors into the folder it is given.
  void save(int64_t step, const std::vector<TrainingStep>& log, const RunIdentity& identity,
            const std::function<void(const std::filesystem::path&)>& write) const;
  /// Removes all checkpoints but the last `limit` and that of step `best`.
  void keep_last(int64_t limit, std::optional<int64_t> best = {}) const;
  /// Where the checkpoint of a step is.
  std::filesystem::path checkpoint(int64_t step) const;
  /// Why that one cannot be loaded; empty: it is whole.
  std::string trouble_with(int64_t step) const;

  /// Begins metrics.jsonl with the steps of `log`, and a file of events for TensorBoard in runs/.
  void begin_metrics(const std::vector<TrainingStep>& log);
  /// One line; IoError when it cannot be written.
  void add_metrics(const TrainingStep& step);
  /// report.html, in place of the one that is there.
  void write_page(const std::string& html) const;

 private:
  /// By number, lowest first.
  std::vector<std::pair<int64_t, std::filesystem::path>> checkpoints() const;

  std::filesystem::path dir_;
  std::shared_ptr<io::FolderLock> lock_;
  io::AppendFile metrics_;
  std::optional<io::EventFile> events_;
};

}  // namespace graft::train
