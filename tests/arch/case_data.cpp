#include <algorithm>
#include <fstream>
#include <stdexcept>

#include "arch/kernel_cases.h"
#include "codegen/evaluate.h"
#include "targets/cpu/trial_memory.h"

namespace graft::kernel_cases {
namespace {

using codegen::Kernel;

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
               const std::vector<codegen::Stored>& stored, bool fails) {
  file.put(int64_t{fails});
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

/// Writes an index that is out of range over an element that is read as one. False if there is none.
bool put_wrong_index(const Kernel& kernel, cpu::TrialMemory& memory) {
  for (const auto& i : kernel.code)
    for (const auto& indirect : i.indirect) {
      const auto& index = kernel.code[static_cast<size_t>(indirect.value)];
      if (index.op != codegen::Op::load || index.dtype != ir::DType::i64) continue;
      auto* elements = static_cast<int64_t*>(memory.buffers()[static_cast<size_t>(index.buffer)]);
      elements[index.index.max()] = indirect.size;
      return true;
    }
  return false;
}

/// Rounds in which TrialMemory has ordinary numbers, NaN and infinities, large ones, equal ones. False if
/// indices that are computed are out of range in all of them.
bool put_case(Words& file, const NamedKernel& named) {
  constexpr int tried[] = {0, 2, 3, 4, 5, 7};
  constexpr int64_t many_points = 100000;  // take time
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
    if (points.rows * kernel.reduced_points() > many_points && rounds.size() == 2) break;
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
  file.put(static_cast<int64_t>(rounds.size()) + (named.fails ? 1 : 0));
  for (const auto& round : rounds) {
    memory.start_round(round.number, round.largest_index);
    const auto expected = codegen::evaluate(kernel, points, memory);
    // What is not stored shows.
    if (!kernel.scatters())
      for (const auto& each : expected.stored) memory.spoil(each.buffer, each.element);
    put_round(file, kernel, memory, expected.stored, false);
  }
  if (named.fails) {
    if (!put_wrong_index(kernel, memory)) throw std::logic_error("nothing can fail in " + named.name);
    put_round(file, kernel, memory, {}, true);
  }
  return true;
}

}  // namespace

std::vector<const NamedKernel*> write_cases(const std::filesystem::path& path, const Kernels& kernels) {
  std::vector<const NamedKernel*> kept;
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

}  // namespace graft::kernel_cases
