// What transformers gives to chat templates beside Jinja's own, and filters that minja lacks.
#pragma once
#include <minja/minja.hpp>

namespace graft::io {

/// `raised` receives what raise_exception() is called with.
void add_template_functions(minja::Context& context, std::string& raised);

}  // namespace graft::io
