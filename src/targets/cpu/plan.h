// How a kernel runs on a CPU: which dimension is vectorised, and how the work is distributed to threads.
#pragma once
#include <string>
#include <vector>

#include "codegen/kernel.h"
#include "targets/cpu/jit.h"

namespace graft::cpu {

struct Plan {
  /// The dimension whose neighbours share a vector; -1: none, the kernel has one point per task.
  int vector_dim = -1;
  int width = 1;       ///< lanes
  int64_t block = 1;   ///< of a kept vector dimension: elements per task, a multiple of the width
  int64_t blocks = 1;  ///< tasks along it
  /// Neighbouring tasks are neighbours in the other dimensions, not along this one: what is read or written
  /// there lies in the lines of memory that the task before has touched (a transposed copy).
  bool across = false;
  int64_t tasks = 1;  ///< in all: kept dimensions other than the vector's, times blocks
  int64_t work = 1;   ///< instructions times points, per task: to decide how many tasks a thread gets
  bool rows = false;  ///< the vector dimension is a reduced one

  /// Where there are few tasks and each is long, a reduced dimension is distributed, too. The kernel then
  /// runs in stages: one for each phase, in which every part of every task leaves what its reductions came to
  /// in memory, and a last one for what is stored once. Each stage starts by combining what the parts before
  /// it left. The parts follow from sizes alone: results do not depend on the number of threads. A kernel
  /// with reductions over rows has its rows distributed in parts, and a second stage for what follows. A
  /// kernel that scatters whole rows has the rows that it adds to distributed, with no second stage: each
  /// part (their number is a power of two) walks all points and adds those that go to its own rows, every so
  /// many-th, because what comes often stands together at the start of a vocabulary.
  /// Neighbouring tasks are the parts of a row, or the columns of a part.
  int split_dim = -1;
  int64_t part = 0;  ///< elements of it (or rows) in each part, a multiple of the width if it is the vector's
  int64_t parts = 1;  ///< of each task
  int stages = 1;
  int64_t partial_words = 0;  ///< of 64 bits: the memory that the parts need

  int parted_stages = 0;  ///< the first ones; those after them have whole tasks
  int64_t tasks_in(int stage) const { return stage < parted_stages ? tasks * parts : tasks; }
  bool operator==(const Plan&) const = default;
};

/// Where in the partial memory a reduction's results begin, in numbers of (task, part): its values, then, for
/// argmax and argmin, their places; one for each column where it has that many.
struct PartialSlots {
  std::vector<int> of;  ///< by instruction; -1: no reduction
  int count = 0;
};
PartialSlots partial_slots(const codegen::Kernel& kernel);

/// What may be tried in place of the usual (tuning.h).
struct Tuning {
  int width = 0;         ///< 1: twice as many lanes, -1: half as many
  int64_t block = 2048;  ///< elements that a task has at least where nothing is reduced
  bool operator==(const Tuning&) const = default;
};
/// Empty for the usual.
std::string to_string(const Tuning& tuning);

Plan plan(const codegen::Kernel& kernel, const Host& host, const Tuning& tuning = {});

/// Those that differ for this kernel; the usual is the first.
std::vector<Tuning> tunings(const codegen::Kernel& kernel, const Host& host);

}  // namespace graft::cpu
