// What a chat template may cost, and the small pieces of Python that minja lacks. The build puts calls to
// these into its copy of minja.hpp (scripts/patch_minja.py says where and why): templates come from
// strangers, and minja by itself sets no bounds.
//
// A budget belongs to a thread for the time of a Scope; without one nothing is counted.
#pragma once
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "io/template_engine.h"

namespace graft::io::budget {

/// What is counted, and what a rendering leaves beside its text.
struct State {
  TemplateLimits limits;
  std::chrono::steady_clock::time_point deadline;
  int64_t steps = 0;
  size_t bytes = 0;
  int depth = 0;
  bool located = false;
  std::vector<std::function<void()>> at_end = {};
  std::string reached = {};           ///< which limit ended it; minja rewraps exceptions
  const void* outermost = nullptr;    ///< the context of the whole template
  const std::ostream* out = nullptr;  ///< the stream of the whole template
  std::vector<std::pair<size_t, size_t>> generated =
      {};  ///< what {% generation %} blocks wrote: [begin, end)
};

class Scope {
 public:
  explicit Scope(State& state);
  ~Scope();
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;
};

/// One step of work; throws where they are used up, or the time is.
void step();
/// So many bytes were made. They count as long as the rendering lasts.
void charge(size_t bytes);
/// Throws if `count` pieces of `size` bytes would be more than may be made.
void expect(size_t count, size_t size);
/// A text so many times.
std::string repeated(const std::string& text, int64_t count);
/// The same for what str.replace makes.
void expect_replaced(const std::string& text, const std::string& before, const std::string& after);
/// As Jinja's sandbox: at most 100,000 numbers; a step of 0 is an error.
void expect_range(int64_t start, int64_t end, int64_t step);

/// A level of nesting, and a step.
class Level {
 public:
  Level();
  ~Level();
  Level(const Level&) = delete;
  Level& operator=(const Level&) = delete;
};

/// Whether an error's place is still to be told.
bool locates();
/// Run when the rendering is over, however it ends.
void at_end(std::function<void()> work);
/// A macro keeps a reference to the context it is made in, which only the outermost one outlives.
void require_outermost(const void* context);
/// Where a {% generation %} block begins or ends.
void mark_generation(std::ostringstream& out, bool begins);

// Python's numbers and texts.
int64_t floor_divided(int64_t left, int64_t right);
int64_t remainder(int64_t left, int64_t right);
double divided(double left, double right);
/// Brings a slice of something `size` long into bounds.
void clamp_slice(int64_t& start, int64_t& end, int64_t& step, int64_t size);
std::string sliced(const std::string& text, std::optional<int64_t> start, std::optional<int64_t> end,
                   std::optional<int64_t> step);
std::vector<std::string> characters(const std::string& text);
/// Empty if there is none.
std::optional<std::string> character(const std::string& text, int64_t index);
size_t length(const std::string& text);
/// Without what str.isspace() accepts.
std::string stripped(const std::string& text, bool left, bool right);
/// Without what separates words in a template's own text.
std::string trimmed(std::string text, bool left, bool right);

}  // namespace graft::io::budget
