// Templates over minja, within limits.
#include "io/template_engine.h"

#include "graft/error.h"
#include "io/format/utf8.h"
#include "io/minja/functions.h"
#include "io/minja/large_stack.h"

namespace graft::io {
namespace {

/// minja adds the place of every node around an error; the first is the one that matters.
std::string innermost(const std::string& what) { return what.substr(0, what.find(":\n")); }

struct AtEnd {
  budget::State& state;
  ~AtEnd() {
    for (const auto& work : state.at_end) work();
    state.at_end.clear();
  }
};

class MinjaEngine final : public TemplateEngine {
 public:
  MinjaEngine(const std::string& source, const std::string& label, const TemplateLimits& limits)
      : label_(label), limits_(limits) {
    if (source.size() > limits.max_source)
      fail_limit("it has " + std::to_string(source.size()) + " bytes, more than the " +
                 std::to_string(limits.max_source) + " allowed");
    check_utf8(source, label);
    if (source.find('\0') != source.npos) throw FormatError("[chat template] " + label + " has a NUL in it");
    budget::State state{.limits = limits};
    run_on_large_stack([&] {
      const budget::Scope scope(state);
      try {
        root_ = minja::Parser::parse(source, {.trim_blocks = true, .lstrip_blocks = true});
      } catch (const std::exception& error) {
        if (!state.reached.empty()) fail_limit(state.reached);
        throw FormatError("[chat template] " + label_ + " cannot be read: " + innermost(error.what()));
      }
    });
    constexpr char block[] = "endgeneration";
    has_generation_ = source.find(block) != source.npos;
  }

  ~MinjaEngine() override {
    try {
      run_on_large_stack([&] { root_.reset(); });
    } catch (const std::exception&) {
      root_.reset();  // there was no thread to be had
    }
  }
  MinjaEngine(const MinjaEngine&) = delete;
  MinjaEngine& operator=(const MinjaEngine&) = delete;

  RenderedTemplate render(const nlohmann::ordered_json& variables) const override {
    budget::State state{.limits = limits_};
    RenderedTemplate result;
    // All that the template makes is also freed there.
    run_on_large_stack([&] {
      const AtEnd clean{state};
      result.text = rendered(variables, state);
    });
    result.generated = std::move(state.generated);
    return result;
  }

  bool has_generation_blocks() const override { return has_generation_; }

 private:
  [[noreturn]] void fail_limit(const std::string& what) const {
    throw UsageError("[chat template] " + label_ + ": " + what + ", which is more than a template may");
  }

  std::string rendered(const nlohmann::ordered_json& variables, budget::State& state) const {
    std::string raised;
    try {
      const auto context = minja::Context::make(minja::Value::object(), minja::Context::builtins());
      add_template_functions(*context, raised);
      for (const auto& [name, value] : variables.items()) context->set(name, minja::Value(value));
      std::ostringstream out;
      state.outermost = context.get();
      state.out = &out;
      const budget::Scope scope(state);
      root_->render(out, context);
      if (static_cast<size_t>(out.tellp()) > limits_.max_output)
        fail_limit("it writes more than " + std::to_string(limits_.max_output) + " bytes");
      auto text = out.str();
      check_utf8(text, "what " + label_ + " writes");
      return text;
    } catch (const Error&) {
      throw;
    } catch (const std::exception& error) {
      if (!state.reached.empty()) fail_limit(state.reached);
      if (!raised.empty())
        throw UsageError("[chat template] " + label_ + " refuses this conversation: " + raised);
      throw FormatError("[chat template] " + label_ + ": " + innermost(error.what()));
    }
  }

  std::string label_;
  TemplateLimits limits_;
  std::shared_ptr<minja::TemplateNode> root_;
  bool has_generation_ = false;
};

}  // namespace

std::unique_ptr<const TemplateEngine> make_template_engine(const std::string& source,
                                                           const std::string& label,
                                                           const TemplateLimits& limits) {
  return std::make_unique<MinjaEngine>(source, label, limits);
}

}  // namespace graft::io
