// graft's half of test_chat_template.py: one JSON object a line on stdin, one on stdout.
//
//   {"template": ..., "special_tokens": {...}, "messages": [...], "tools": [...], "variables": {...},
//    "add_generation_prompt": true, "limits": {"max_steps": ...}}      -> {"text": ..., "generated": [[begin,
//    end]]}
//   {"folder": ..., "name": ..., "messages": [...]}                    -> the same
// What graft throws comes back as {"error": message, "seconds": how long it took}.
#include <graft/chat_template.h>
#include <graft/error.h>

#include <chrono>
#include <iostream>
#include <nlohmann/json.hpp>

using nlohmann::ordered_json;

static graft::ChatTemplateLimits limits_of(const ordered_json& in) {
  graft::ChatTemplateLimits limits;
  if (!in.contains("limits")) return limits;
  limits.max_steps = in["limits"].value("max_steps", limits.max_steps);
  limits.max_output = in["limits"].value("max_output", limits.max_output);
  limits.max_bytes = in["limits"].value("max_bytes", limits.max_bytes);
  limits.max_seconds = in["limits"].value("max_seconds", limits.max_seconds);
  return limits;
}

static ordered_json rendered(const ordered_json& in) {
  const std::map<std::string, std::string> none;
  const auto chat = in.contains("folder")
                        ? graft::ChatTemplate::from_pretrained(in["folder"].get<std::string>(),
                                                               in.value("name", "default"), limits_of(in))
                        : graft::ChatTemplate::from_source(in.at("template").get<std::string>(),
                                                           in.value("special_tokens", none), limits_of(in));
  graft::ChatTemplateCall call{.add_generation_prompt = in.value("add_generation_prompt", false)};
  if (in.contains("tools") && !in["tools"].is_null()) call.tools = in["tools"].dump();
  if (in.contains("variables")) call.variables = in["variables"].dump();
  const auto result = chat->render_json(in.at("messages").dump(), call);
  return {{"text", result.text}, {"generated", result.generated}};
}

int main() {
  std::ios::sync_with_stdio(false);
  for (std::string line; std::getline(std::cin, line);) {
    const auto start = std::chrono::steady_clock::now();
    ordered_json out;
    try {
      out = rendered(ordered_json::parse(line));
    } catch (const graft::Error& error) {
      out = {{"error", error.what()}};
    }
    out["seconds"] = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    std::cout << out.dump()
              << std::endl;  // NOLINT(performance-avoid-endl): a crash must not lose the answers before it
  }
}
