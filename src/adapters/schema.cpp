#include "adapters/schema.h"

#include "adapters/method.h"

namespace graft::adapters {

Field object_field(std::string_view name, std::vector<Field> parts, const nlohmann::json& fallback) {
  return {name, fallback, {}, Field::Rule::any, std::move(parts)};
}

std::optional<nlohmann::json> object_of(const AdapterConfig& config, std::string_view field) {
  auto value = nlohmann::json::parse(config.text(field));
  if (!value.is_object()) return std::nullopt;
  for (const auto& each : find_method(config.peft_type()).fields)
    if (each.name == field)
      for (const auto& part : each.parts)
        if (!value.contains(part.name)) value[std::string(part.name)] = part.fallback;
  return value;
}

const std::vector<Field>& common_fields() {
  static const std::vector<Field> fields{
      {"peft_type"},
      {"task_type",
       nullptr,
       {"SEQ_CLS", "SEQ_2_SEQ_LM", "CAUSAL_LM", "TOKEN_CLS", "QUESTION_ANS", "FEATURE_EXTRACTION"}},
      {"base_model_name_or_path"},
      {"revision"},
      {"inference_mode", false},
      {"auto_mapping", nullptr, {}, Field::Rule::any},
      {"peft_version", kPeftVersion}};
  return fields;
}

const std::vector<Field>& target_fields() {
  static const std::vector<Field> fields{{"target_modules", nullptr, {}, Field::Rule::any},
                                         {"exclude_modules", nullptr, {}, Field::Rule::any},
                                         {"modules_to_save", nullptr, {}, Field::Rule::any},
                                         {"layers_to_transform", nullptr, {}, Field::Rule::any},
                                         {"layers_pattern", nullptr, {}, Field::Rule::any}};
  return fields;
}

}  // namespace graft::adapters
