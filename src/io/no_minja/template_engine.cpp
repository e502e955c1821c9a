// Stands in where minja was not fetched.
#include "io/template_engine.h"

#include "graft/error.h"

namespace graft::io {

std::unique_ptr<const TemplateEngine> make_template_engine(const std::string&, const std::string&,
                                                           const TemplateLimits&) {
  throw Error(
      "[chat template] this graft was built without minja, which renders chat templates: run `make setup`, "
      "which fetches it, and build again");
}

}  // namespace graft::io
