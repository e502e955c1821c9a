// Jinja templates, as far as chat templates go.
//
// Implemented over minja in src/io/minja/; src/io/no_minja/ has the same interface and throws.
#pragma once
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "graft/chat_template.h"

namespace graft::io {

using TemplateLimits = ChatTemplateLimits;

struct RenderedTemplate {
  std::string text;
  std::vector<std::pair<size_t, size_t>>
      generated;  ///< bytes that {% generation %} blocks wrote: [begin, end)
};

class TemplateEngine {
 public:
  virtual ~TemplateEngine() = default;
  /// Any number of threads at once. Throws FormatError for what the template itself raises or cannot do,
  /// UsageError where a limit is reached.
  virtual RenderedTemplate render(const nlohmann::ordered_json& variables) const = 0;
  virtual bool has_generation_blocks() const = 0;
};

/// `label` opens messages. FormatError for what is no template.
std::unique_ptr<const TemplateEngine> make_template_engine(const std::string& source,
                                                           const std::string& label,
                                                           const TemplateLimits& limits);

}  // namespace graft::io
