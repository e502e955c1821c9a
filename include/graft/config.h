// A model's configuration: the content of a Hugging Face config.json, read by key.
//
// A key that is present but null counts as absent, as in transformers. Every key that is read is remembered,
// so that a loader can name the fields of a config.json that nothing looked at.
#pragma once
#include <array>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace graft {

class Config {
 public:
  /// Reads DIR/config.json. Throws FormatError for what is not JSON, IoError when there is no such file.
  static Config from_pretrained(const std::filesystem::path& dir);
  /// `label` names the text in error messages.
  static Config from_json(std::string_view text, std::string_view label = "config.json");

  bool has(std::string_view key) const;
  // Without a default the key is required. The wrong type is a ConfigError that names the key.
  int64_t integer(std::string_view key, std::optional<int64_t> fallback = {}) const;
  double number(std::string_view key, std::optional<double> fallback = {}) const;
  bool boolean(std::string_view key, std::optional<bool> fallback = {}) const;
  std::string string(std::string_view key, const std::optional<std::string>& fallback = {}) const;
  std::vector<int64_t> integers(std::string_view key,
                                const std::optional<std::vector<int64_t>>& fallback = {}) const;
  std::vector<double> numbers(std::string_view key,
                              const std::optional<std::vector<double>>& fallback = {}) const;
  std::vector<std::string> strings(std::string_view key,
                                   const std::optional<std::vector<std::string>>& fallback = {}) const;
  /// [height, width] from a list of two, or from one number for a square; each at least 1.
  std::array<int64_t, 2> height_width(std::string_view key, int64_t fallback) const;
  std::optional<int64_t> optional_integer(std::string_view key) const;

  /// The object under `key`; an empty one when absent. Reads through it are remembered here as reads of
  /// `key`.
  Config object(std::string_view key) const;
  /// An integer of at least `least`: sizes and counts, of which a zero or a negative one is a broken config.
  int64_t size(std::string_view key, std::optional<int64_t> fallback = {}, int64_t least = 1) const;

  /// Number of labels of a classification head: `id2label`'s length, else `num_labels`, else 2 (transformers'
  /// rule).
  int64_t num_labels() const;

  void set(std::string_view key, std::string_view value);
  void set(std::string_view key, int64_t value);
  void set(std::string_view key, bool value);
  void set(std::string_view key, const std::vector<std::string>& value);
  /// Other labels than the file names: they are called LABEL_0 and on, as transformers does it.
  void set_num_labels(int64_t count);

  std::vector<std::string> keys() const;
  /// Keys present, not null, and never read: fields this build of graft knows nothing of.
  std::vector<std::string> unread() const;
  /// Marks keys as known though they change no result (token ids for generation, bookkeeping).
  void acknowledge(const std::vector<std::string_view>& keys) const;

  std::string model_type() const { return string("model_type"); }
  /// The text, indented by two spaces with sorted keys, as transformers writes it.
  std::string dump() const;

 private:
  struct State;
  explicit Config(std::shared_ptr<State> state) : state_(std::move(state)) {}
  std::shared_ptr<State> state_;
};

}  // namespace graft
