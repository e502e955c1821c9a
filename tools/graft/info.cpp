// graft info: what a checkpoint folder, an adapter's folder or a tensor file holds.
#include <iostream>
#include <nlohmann/json.hpp>

#include "adapters/method.h"
#include "command.h"
#include "graft/adapter_config.h"
#include "graft/error.h"
#include "graft/model.h"
#include "graft/safetensors.h"
#include "io/format/hub_cache.h"
#include "io/gguf.h"

namespace graft::cli {
namespace {

using nlohmann::ordered_json;
namespace fs = std::filesystem;

struct InfoFlags {
  std::string path;
  bool json = false, architectures = false;
};

std::string shape_text(const std::vector<int64_t>& shape) {
  std::string text;
  for (const auto size : shape) text += (text.empty() ? "" : " x ") + std::to_string(size);
  return text.empty() ? "scalar" : text;
}

std::string size_text(int64_t bytes) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f MB", static_cast<double>(bytes) / 1e6);
  return text;
}

ordered_json describe_checkpoint(const Checkpoint& checkpoint) {
  ordered_json tensors = ordered_json::object();
  int64_t elements = 0;
  for (const auto& name : checkpoint.names()) {
    const auto tensor = checkpoint.info(name);
    int64_t count = 1;
    for (const auto size : tensor.shape) count *= size;
    elements += count;
    tensors[name] = {{"dtype", tensor.dtype}, {"shape", tensor.shape}};
  }
  ordered_json files = ordered_json::array();
  for (const auto& file : checkpoint.files()) files.push_back(file.filename().string());
  return {{"files", files},
          {"total_bytes", checkpoint.total_bytes()},
          {"elements", elements},
          {"tensors", tensors}};
}

/// What is asked first about an adapter, by the names of its configuration: of many methods' fields those
/// that this one has and sets; then whatever else is set otherwise than by default.
ordered_json settings_of(const AdapterConfig& adapter, const ordered_json& config) {
  ordered_json settings = ordered_json::object();
  const auto add = [&](const std::string& name) {
    const auto at = config.find(name);
    if (at != config.end() && !at->is_null() && *at != false && *at != 0.0 && *at != "none" && !at->empty())
      settings[name] = *at;
  };
  for (const char* name : {"r", "init_r", "target_r", "lora_alpha", "alpha", "oft_block_size",
                           "num_virtual_tokens", "lora_dropout", "use_dora", "use_rslora", "bias",
                           "target_modules", "target_parameters", "feedforward_modules", "modules_to_save"})
    // AdaLoRA has target_r in its place.
    if (!(name == std::string_view("r") && config.contains("target_r"))) add(name);
  for (const auto* fields : {&adapters::find_method(adapter.peft_type()).fields, &adapters::target_fields()})
    for (const auto& field : *fields)
      if (const std::string name(field.name);
          !settings.contains(name) && config.contains(name) && config[name] != ordered_json(field.fallback))
        settings[name] = config[name];
  for (const char* name : {"task_type", "peft_version"}) add(name);
  return settings;
}

/// A list as words, an only text without quotes.
std::string text_of(const ordered_json& value) {
  if (value.is_string()) return value;
  if (!value.is_array()) return value.dump();
  std::string text;
  for (const auto& each : value) text += (text.empty() ? "" : ", ") + text_of(each);
  return text;
}

ordered_json describe_adapter(const fs::path& path) {
  ordered_json info{{"path", path.string()}};
  const auto config = AdapterConfig::from_pretrained(path);
  info["peft_type"] = config.peft_type();
  info["base_model"] = config.string("base_model_name_or_path");
  info["config"] = ordered_json::parse(config.dump());
  info["settings"] = settings_of(config, info["config"]);
  info.update(describe_checkpoint(Checkpoint::open(path, "adapter_model")));
  return info;
}

ordered_json describe_config(const Config& config) {
  const auto names = config.strings("architectures", std::vector<std::string>{});
  const auto known = known_architectures();
  const std::string name = names.empty() ? "" : names.front();
  return {{"model_type", config.string("model_type", "")},
          {"architecture", name},
          {"supported", std::find(known.begin(), known.end(), name) != known.end()},
          {"config", ordered_json::parse(config.dump())}};
}

/// Tensors as the file has them: its own names and types.
ordered_json describe_gguf(const fs::path& path) {
  const auto file = io::GgufFile::open(path);
  ordered_json info{{"path", path.string()}}, tensors = ordered_json::object();
  info.update(describe_config(Config::from_pretrained(path)));
  uint64_t elements = 0, bytes = 0;
  for (const auto& tensor : file->header().tensors) {
    elements += tensor.bytes / io::block_bytes(tensor.type) * io::block_elements(tensor.type);
    bytes += tensor.bytes;
    tensors[tensor.name] = {{"dtype", io::name_of(tensor.type)}, {"shape", tensor.shape}};
  }
  info["files"] = {path.filename().string()};
  info["total_bytes"] = bytes;
  info["elements"] = elements;
  info["tensors"] = std::move(tensors);
  return info;
}

ordered_json describe(const fs::path& given) {
  const auto path = io::local_path(given);
  if (fs::exists(path / "adapter_config.json")) return describe_adapter(path);
  if (const auto gguf = io::gguf_file_at(path)) return describe_gguf(*gguf);
  ordered_json info{{"path", path.string()}};
  if (fs::is_directory(path)) info.update(describe_config(Config::from_pretrained(path)));
  info.update(describe_checkpoint(Checkpoint::open(path)));
  return info;
}

void print(const ordered_json& info) {
  const auto line = [](std::string_view what, const std::string& value) {
    std::printf("%-14s %s\n", std::string(what).c_str(), value.c_str());
  };
  line("path", info["path"]);
  if (info.contains("architecture")) {
    line("architecture",
         info["architecture"].get<std::string>() + (info["supported"] ? "" : "   (not supported)"));
    line("model type", info["model_type"]);
  }
  if (info.contains("peft_type")) {
    line("adapter", info["peft_type"]);
    line("base model", info["base_model"]);
    for (const auto& [name, value] : info["settings"].items()) line(name, text_of(value));
  }
  line("elements", std::to_string(info["elements"].get<int64_t>()));
  line("size", size_text(info["total_bytes"]));
  line("files", std::to_string(info["files"].size()));
  std::printf("\n");
  for (const auto& [name, tensor] : info["tensors"].items())
    std::printf("  %-60s %-8s %s\n", name.c_str(), tensor["dtype"].get<std::string>().c_str(),
                shape_text(tensor["shape"].get<std::vector<int64_t>>()).c_str());
}

void run(const InfoFlags& flags) {
  if (flags.architectures) {
    for (const auto& name : known_architectures()) std::printf("%s\n", name.c_str());
    return;
  }
  if (flags.path.empty())
    throw WrongUsage("info needs a checkpoint's or an adapter's folder, or a .safetensors or .gguf file");
  const auto info = describe(flags.path);
  if (flags.json)
    std::cout << info.dump() << "\n";
  else
    print(info);
}

}  // namespace

void add_info(CLI::App& app) {
  auto* command = app.add_subcommand("info", "Show what a checkpoint, an adapter or a tensor file holds");
  auto flags = std::make_shared<InfoFlags>();
  command->add_option("path", flags->path,
                      "The folder of a checkpoint or an adapter, or a .safetensors or .gguf file");
  command->add_flag("--json", flags->json, "Print JSON for a program to read");
  command->add_flag("--architectures", flags->architectures, "List the architectures graft can load");
  command->footer("Example:\n  graft info checkpoints/llama --json");
  command->callback([flags] { run(*flags); });
}

}  // namespace graft::cli
