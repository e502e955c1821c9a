#include "io/minja/budget.h"

#include <algorithm>
#include <stdexcept>

#include "io/format/utf8.h"

namespace graft::io::budget {
namespace {

thread_local State* current = nullptr;

[[noreturn]] void reached(const std::string& what) {
  current->reached = what;
  throw std::runtime_error(what);
}

/// str.isspace(): Unicode's White_Space and the four separators of ASCII.
bool is_space(char32_t c) { return is_white_space(c) || (c >= 0x1C && c <= 0x1F); }

/// What the functions below take for granted; minja itself works on bytes and may cut a character in two.
void require_utf8(const std::string& text) {
  if (find_invalid_utf8(text) != std::string::npos)
    throw std::runtime_error("a text was cut inside a character");
}

}  // namespace

Scope::Scope(State& state) {
  state.deadline =
      std::chrono::steady_clock::now() + std::chrono::duration_cast<std::chrono::steady_clock::duration>(
                                             std::chrono::duration<double>(state.limits.max_seconds));
  current = &state;
}
Scope::~Scope() { current = nullptr; }

void step() {
  if (!current) return;
  if (++current->steps > current->limits.max_steps)
    reached("it takes more than " + std::to_string(current->limits.max_steps) + " steps");
  constexpr int64_t often = 64;  // the clock is slower than a step
  if (current->steps % often == 0 && std::chrono::steady_clock::now() > current->deadline)
    reached("it takes more than " + std::to_string(current->limits.max_seconds) + " seconds");
}

void charge(size_t bytes) {
  if (!current) return;
  current->bytes += std::min(bytes, current->limits.max_bytes + 1);
  if (current->bytes > current->limits.max_bytes)
    reached("it makes more than " + std::to_string(current->limits.max_bytes) + " bytes");
}

void expect(size_t count, size_t size) {
  if (!current || count == 0 || size == 0) return;
  if (size > current->limits.max_bytes / count)
    reached("it makes more than " + std::to_string(current->limits.max_bytes) + " bytes");
}

std::string repeated(const std::string& text, int64_t count) {
  if (count <= 0 || text.empty()) return "";
  expect(static_cast<size_t>(count), text.size());
  const size_t size = text.size() * static_cast<size_t>(count);
  std::string result = text;
  result.reserve(size);
  while (result.size() < size) result.append(result, 0, std::min(result.size(), size - result.size()));
  return result;
}

void expect_replaced(const std::string& text, const std::string& before, const std::string& after) {
  if (before.empty()) throw std::runtime_error("replace() of nothing is not supported");
  size_t count = 0;
  for (size_t at = text.find(before); at != std::string::npos; at = text.find(before, at + before.size()))
    ++count;
  expect(count, after.size());
}

void expect_range(int64_t start, int64_t end, int64_t step) {
  constexpr uint64_t most = 100000;
  if (step == 0) throw std::runtime_error("range() must not have a step of 0");
  if (step > 0 ? start >= end : start <= end) return;
  const uint64_t span = step > 0 ? static_cast<uint64_t>(end) - static_cast<uint64_t>(start)
                                 : static_cast<uint64_t>(start) - static_cast<uint64_t>(end);
  const uint64_t stride = step > 0 ? static_cast<uint64_t>(step) : uint64_t{0} - static_cast<uint64_t>(step);
  if ((span - 1) / stride >= most) throw std::runtime_error("range() of more than 100000 numbers");
}

Level::Level() {
  if (!current) return;
  step();
  if (current->depth >= current->limits.max_depth)
    reached("it is nested more than " + std::to_string(current->limits.max_depth) + " levels deep");
  ++current->depth;
}
Level::~Level() {
  if (current) --current->depth;
}

bool locates() { return !current || !std::exchange(current->located, true); }

void at_end(std::function<void()> work) {
  if (!current) return;
  charge(2 * sizeof work);
  current->at_end.push_back(std::move(work));
}

void require_outermost(const void* context) {
  if (current && context != current->outermost)
    throw std::runtime_error("macros in loops and in macros are not supported");
}

void mark_generation(std::ostringstream& out, bool begins) {
  if (!current) return;
  if (&out != current->out)
    throw std::runtime_error("{% generation %} in a macro or a {% set %} block is not supported");
  const auto here = static_cast<size_t>(out.tellp());
  if (begins)
    current->generated.emplace_back(here, here);
  else if (!current->generated.empty())
    current->generated.back().second = here;
}

int64_t floor_divided(int64_t left, int64_t right) {
  if (right == 0) throw std::runtime_error("division by zero");
  if (right == -1) return static_cast<int64_t>(uint64_t{0} - static_cast<uint64_t>(left));
  return left / right - ((left % right != 0 && (left < 0) != (right < 0)) ? 1 : 0);
}

int64_t remainder(int64_t left, int64_t right) {
  if (right == 0) throw std::runtime_error("division by zero");
  if (right == -1) return 0;
  const int64_t rest = left % right;
  return rest != 0 && (rest < 0) != (right < 0) ? rest + right : rest;
}

double divided(double left, double right) {
  if (right == 0) throw std::runtime_error("division by zero");
  return left / right;
}

void clamp_slice(int64_t& start, int64_t& end, int64_t& step, int64_t size) {
  const int64_t least = step > 0 ? 0 : -1, most = step > 0 ? size : size - 1;
  start = std::clamp(start, least, std::max(least, most));
  end = std::clamp(end, least, std::max(least, most));
  step = std::clamp(step, -size - 1, size + 1);
}

std::vector<std::string> characters(const std::string& text) {
  charge(text.size() * sizeof(std::string));
  require_utf8(text);
  std::vector<std::string> all;
  all.reserve(text.size());
  for (size_t pos = 0; pos < text.size();) {
    const size_t start = pos;
    next_code_point(text, pos);
    all.push_back(text.substr(start, pos - start));
  }
  return all;
}

std::string sliced(const std::string& text, std::optional<int64_t> start, std::optional<int64_t> end,
                   std::optional<int64_t> step) {
  const auto all = characters(text);
  const auto size = static_cast<int64_t>(all.size());
  int64_t stride = step.value_or(1);
  if (stride == 0) throw std::runtime_error("slice step cannot be zero");
  const auto place = [&](int64_t at) { return at < 0 ? std::max(at, -size - 1) + size : at; };
  int64_t from = start ? place(*start) : (stride < 0 ? size - 1 : 0),
          to = end ? place(*end) : (stride < 0 ? -1 : size);
  clamp_slice(from, to, stride, size);
  std::string result;
  for (int64_t i = from; stride > 0 ? i < to : i > to; i += stride) result += all[static_cast<size_t>(i)];
  return result;
}

std::optional<std::string> character(const std::string& text, int64_t index) {
  const auto all = characters(text);
  const auto size = static_cast<int64_t>(all.size());
  if (index < -size || index >= size) return {};
  return all[static_cast<size_t>(index < 0 ? index + size : index)];
}

size_t length(const std::string& text) {
  require_utf8(text);
  return count_code_points(text);
}

std::string stripped(const std::string& text, bool left, bool right) {
  require_utf8(text);
  size_t begin = 0, end = text.size();
  while (left && begin < end) {
    size_t next = begin;
    if (!is_space(next_code_point(text, next))) break;
    begin = next;
  }
  while (right && begin < end) {
    const size_t before = previous_code_point(text, end);
    size_t at = before;
    if (!is_space(next_code_point(text, at))) break;
    end = before;
  }
  return text.substr(begin, end - begin);
}

std::string trimmed(std::string text, bool left, bool right) {
  constexpr char spaces[] = " \t\n\r\v\f";
  if (right) text.erase(text.find_last_not_of(spaces) + 1);
  if (left) text.erase(0, text.find_first_not_of(spaces));
  return text;
}

}  // namespace graft::io::budget
