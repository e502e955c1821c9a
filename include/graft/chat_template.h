// Conversations to text, by the Jinja template that comes with a model, as transformers' apply_chat_template
// does it.
//
//   auto chat = graft::ChatTemplate::from_pretrained("SmolLM2-135M-Instruct");
//   std::string prompt = chat->render({{"system", "Be brief."}, {"user", "Hello"}}, {.add_generation_prompt =
//   true}); auto ids = tokenizer->encode(prompt, {}, /*add_special_tokens=*/false).ids;   // the template has
//   put them in
//
// A template is a program that came with somebody's files. What it may cost is bounded by ChatTemplateLimits;
// docs/chat.md says what is bounded and how.
#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace graft {

struct ChatMessage {
  std::string role, content;
};

/// What rendering may cost.
struct ChatTemplateLimits {
  size_t max_source = size_t{128} << 10;  ///< bytes of the template
  int64_t max_steps = 2'000'000;          ///< nodes rendered, expressions evaluated, values written
  size_t max_bytes = size_t{256} << 20;   ///< made on the way, all taken together
  size_t max_output = size_t{32} << 20;
  int max_depth = 400;  ///< of nesting, calls of macros included
  double max_seconds = 5;
};

struct ChatTemplateCall {
  bool add_generation_prompt = false;
  /// A JSON list of tools, as transformers takes them; empty: none.
  std::string tools = {};
  /// A JSON object of further variables: {"enable_thinking": false}.
  std::string variables = {};
};

class ChatTemplate {
 public:
  struct Rendered {
    std::string text;
    /// Bytes of `text` that {% generation %} blocks wrote, as [begin, end).
    std::vector<std::pair<size_t, size_t>> generated;
  };

  /// The template of a model folder (chat_template.jinja, or tokenizer_config.json's chat_template; `name`
  /// chooses where there are several) or of a GGUF file, with its special tokens. ConfigError where there is
  /// none.
  static std::shared_ptr<const ChatTemplate> from_pretrained(const std::filesystem::path& folder_or_file,
                                                             const std::string& name = "default",
                                                             const ChatTemplateLimits& limits = {});
  /// Whether from_pretrained finds one.
  static bool exists(const std::filesystem::path& folder_or_file);
  /// `special_tokens`: what the template sees as bos_token, eos_token and so on.
  static std::shared_ptr<const ChatTemplate> from_source(
      const std::string& source, const std::map<std::string, std::string>& special_tokens = {},
      const ChatTemplateLimits& limits = {});

  std::string render(const std::vector<ChatMessage>& messages, const ChatTemplateCall& call = {}) const;
  /// Messages as a JSON list of objects, which may have more than a role and a content (tool_calls).
  Rendered render_json(std::string_view messages, const ChatTemplateCall& call = {}) const;
  /// Whether the template marks what the assistant says ({% generation %}).
  bool marks_generation() const;
  const std::string& source() const;

  ~ChatTemplate();
  ChatTemplate(const ChatTemplate&) = delete;
  ChatTemplate& operator=(const ChatTemplate&) = delete;

 private:
  struct Impl;
  explicit ChatTemplate(std::unique_ptr<const Impl> impl);
  std::unique_ptr<const Impl> impl_;
};

}  // namespace graft
