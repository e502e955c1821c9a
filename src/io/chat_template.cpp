// Finds a model's chat template and its special tokens, and gives the template what transformers gives it.
#include "graft/chat_template.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "graft/error.h"
#include "io/format/hub_cache.h"
#include "io/format/json.h"
#include "io/format/mapped_file.h"
#include "io/format/quote.h"
#include "io/gguf.h"
#include "io/template_engine.h"
#include "io/tokenizer/bert_vocab.h"
#include "io/tokenizer/gguf_tokenizer.h"

namespace graft {
using nlohmann::ordered_json;
namespace fs = std::filesystem;

struct ChatTemplate::Impl {
  std::string source, label;
  std::map<std::string, std::string> special_tokens;
  std::unique_ptr<const io::TemplateEngine> engine;
};

namespace {

struct Found {
  std::string source, label;
  std::map<std::string, std::string> special_tokens;
};

constexpr const char* kSpecialTokens[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                          "pad_token", "cls_token", "mask_token"};

std::string text_of_file(const fs::path& path) {
  const io::MappedFile file(path);
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

std::optional<Found> find_in_gguf(const fs::path& path, const std::string& name) {
  const auto file = io::GgufFile::open(path);
  const auto& header = file->header();
  const std::string key = "tokenizer.chat_template" + (name == "default" ? "" : "." + name);
  const auto* source = header.string(key, file->label());
  if (!source) return {};
  return Found{.source = *source,
               .label = path.string() + ", " + key,
               .special_tokens = io::gguf_special_tokens(header, file->label())};
}

/// From tokenizer_config.json's `chat_template`: a text, or a list of named ones.
std::optional<std::string> named_template(const nlohmann::json& value, const std::string& name,
                                          const std::string& label) {
  if (value.is_string()) return name == "default" ? std::optional(value.get<std::string>()) : std::nullopt;
  if (!value.is_array()) throw ConfigError("[chat template] " + label + " is neither a text nor a list");
  for (const auto& each : value) {
    if (!each.is_object() || !each.contains("name") || !each.contains("template") ||
        !each["name"].is_string() || !each["template"].is_string())
      throw ConfigError("[chat template] " + label + " has an entry without a name and a template");
    if (each["name"] == name) return each["template"].get<std::string>();
  }
  return {};
}

std::optional<Found> find_in_folder(const fs::path& folder, const std::string& name) {
  Found found;
  const fs::path config_file = folder / "tokenizer_config.json",
                 file = name == "default" ? folder / "chat_template.jinja"
                                          : folder / "additional_chat_templates" / (name + ".jinja");
  nlohmann::json config = nlohmann::json::object();
  if (fs::exists(config_file)) config = io::read_json_file(config_file);
  if (!config.is_object()) throw ConfigError("[chat template] " + config_file.string() + " is not an object");
  if (fs::exists(file)) {
    found = {.source = text_of_file(file), .label = file.string()};
  } else if (const auto entry = config.find("chat_template"); entry != config.end() && !entry->is_null()) {
    found.label = config_file.string() + ", chat_template";
    const auto source = named_template(*entry, name, found.label);
    if (!source) return {};
    found.source = *source;
  } else {
    return {};
  }
  nlohmann::json older = nlohmann::json::object();
  const fs::path older_file = folder / "special_tokens_map.json";
  if (fs::exists(older_file)) older = io::read_json_file(older_file);
  for (const char* token : kSpecialTokens)
    for (const auto* place : {&config, &older})
      if (const auto entry = place->find(token); entry != place->end() && !entry->is_null()) {
        found.special_tokens[token] =
            io::special_token_content(*entry, found.label + ", " + io::quote(token));
        break;
      }
  return found;
}

std::optional<Found> find(const fs::path& given, const std::string& name) {
  const auto path = io::local_path(given);
  if (const auto gguf = io::gguf_file_at(path)) return find_in_gguf(*gguf, name);
  return find_in_folder(fs::is_directory(path) ? path : path.parent_path(), name);
}

ordered_json parsed(std::string_view text, const char* what, bool (ordered_json::*is)() const noexcept,
                    const char* wanted) {
  auto value = io::parse_ordered_json(text, what);
  if (!(value.*is)()) throw UsageError(std::string("[chat template] ") + what + " must be " + wanted);
  return value;
}

/// A message's reasoning under all the names that templates know it by, as transformers gives it.
ordered_json with_reasoning(const ordered_json& message) {
  for (const char* key : {"reasoning_content", "thinking", "reasoning"}) {
    const auto found = message.find(key);
    if (found == message.end() || found->is_null()) continue;
    ordered_json all{{"thinking", *found}};
    for (const auto& [name, value] : message.items()) all[name] = value;
    all["reasoning_content"] = *found;
    return all;
  }
  return message;
}

ChatTemplate::Rendered rendered(const io::TemplateEngine& engine,
                                const std::map<std::string, std::string>& special_tokens,
                                const ordered_json& messages, const ChatTemplateCall& call) {
  ordered_json variables = ordered_json::object();
  for (const auto& [name, token] : special_tokens) variables[name] = token;
  if (!call.variables.empty())
    variables.update(parsed(call.variables, "the variables", &ordered_json::is_object, "an object"));
  variables["messages"] = ordered_json::array();
  for (const auto& message : messages) {
    if (!message.is_object() || !message.contains("role") || !message["role"].is_string())
      throw UsageError("[chat template] a message must be an object with a \"role\"");
    variables["messages"].push_back(with_reasoning(message));
  }
  variables["tools"] = nullptr;
  if (!call.tools.empty())
    variables["tools"] = parsed(call.tools, "the tools", &ordered_json::is_array, "a list");
  variables["documents"] = nullptr;
  variables["add_generation_prompt"] = call.add_generation_prompt;
  auto result = engine.render(variables);
  return {std::move(result.text), std::move(result.generated)};
}

}  // namespace

ChatTemplate::ChatTemplate(std::unique_ptr<const Impl> impl) : impl_(std::move(impl)) {}
ChatTemplate::~ChatTemplate() = default;

std::shared_ptr<const ChatTemplate> ChatTemplate::from_pretrained(const fs::path& folder_or_file,
                                                                  const std::string& name,
                                                                  const ChatTemplateLimits& limits) {
  auto found = find(folder_or_file, name);
  if (!found)
    throw ConfigError("[chat template] " + io::quote_path(folder_or_file) + " has no chat template" +
                      (name == "default" ? "" : " called " + io::quote(name)));
  auto engine = io::make_template_engine(found->source, found->label, limits);
  return std::shared_ptr<const ChatTemplate>(new ChatTemplate(std::make_unique<const Impl>(
      Impl{std::move(found->source), found->label, std::move(found->special_tokens), std::move(engine)})));
}

bool ChatTemplate::exists(const fs::path& folder_or_file) {
  return find(folder_or_file, "default").has_value();
}

std::shared_ptr<const ChatTemplate> ChatTemplate::from_source(
    const std::string& source, const std::map<std::string, std::string>& special_tokens,
    const ChatTemplateLimits& limits) {
  const std::string label = "the template";
  return std::shared_ptr<const ChatTemplate>(new ChatTemplate(std::make_unique<const Impl>(
      Impl{source, label, special_tokens, io::make_template_engine(source, label, limits)})));
}

std::string ChatTemplate::render(const std::vector<ChatMessage>& messages,
                                 const ChatTemplateCall& call) const {
  ordered_json list = ordered_json::array();
  for (const auto& message : messages) list.push_back({{"role", message.role}, {"content", message.content}});
  return rendered(*impl_->engine, impl_->special_tokens, list, call).text;
}

ChatTemplate::Rendered ChatTemplate::render_json(std::string_view messages,
                                                 const ChatTemplateCall& call) const {
  return rendered(*impl_->engine, impl_->special_tokens,
                  parsed(messages, "the messages", &ordered_json::is_array, "a list"), call);
}

bool ChatTemplate::marks_generation() const { return impl_->engine->has_generation_blocks(); }
const std::string& ChatTemplate::source() const { return impl_->source; }

}  // namespace graft
