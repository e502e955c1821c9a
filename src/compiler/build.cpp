#include "compiler/build.h"

#include "target/ref/interpreter.h"

namespace graft {

std::unique_ptr<Executable> build(ir::Graph graph, const std::vector<at::Generator>& generators,
                                  const CompileOptions& options) {
  (void)options;
  return ref::compile(graph, generators);
}

}  // namespace graft
