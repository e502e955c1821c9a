#include "io/minja/python_json.h"

#include <algorithm>
#include <vector>

namespace graft::io {
namespace {
using nlohmann::ordered_json;

class Writer {
 public:
  explicit Writer(const PythonJsonOptions& options) : options_(options) {}

  std::string take() { return std::move(out_); }

  void write(const ordered_json& value, int64_t level) {
    if (value.is_object())
      object(value, level);
    else if (value.is_array())
      array(value, level);
    else
      out_ += value.dump(-1, ' ', options_.ensure_ascii);
  }

 private:
  void new_line(int64_t level) {
    if (!options_.indent) return;
    out_ += '\n';
    out_.append(static_cast<size_t>(std::max<int64_t>(0, *options_.indent) * level), ' ');
  }
  void separate(bool first) {
    if (!first) out_ += options_.item_separator.value_or(options_.indent ? "," : ", ");
  }

  void array(const ordered_json& value, int64_t level) {
    if (value.empty()) {
      out_ += "[]";
      return;
    }
    out_ += '[';
    bool first = true;
    for (const auto& each : value) {
      separate(first);
      first = false;
      new_line(level + 1);
      write(each, level + 1);
    }
    new_line(level);
    out_ += ']';
  }

  void object(const ordered_json& value, int64_t level) {
    if (value.empty()) {
      out_ += "{}";
      return;
    }
    std::vector<std::string> keys;
    keys.reserve(value.size());
    for (const auto& [key, each] : value.items()) keys.push_back(key);
    if (options_.sort_keys) std::sort(keys.begin(), keys.end());
    out_ += '{';
    bool first = true;
    for (const auto& key : keys) {
      separate(first);
      first = false;
      new_line(level + 1);
      out_ += ordered_json(key).dump(-1, ' ', options_.ensure_ascii);
      out_ += options_.key_separator.value_or(": ");
      write(value[key], level + 1);
    }
    new_line(level);
    out_ += '}';
  }

  const PythonJsonOptions& options_;
  std::string out_;
};

}  // namespace

std::string python_json(const ordered_json& value, const PythonJsonOptions& options) {
  Writer writer(options);
  writer.write(value, 0);
  return writer.take();
}

}  // namespace graft::io
