// The smallest program on the installed library: loads a checkpoint and runs it.
#include <graft/graft.h>

#include <iostream>

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const auto model = graft::AutoModel::from_pretrained(argv[1]);
  const auto out = model->forward({.input_ids = at::arange(6).view({2, 3})});
  std::cout << graft::version() << " " << model->architecture() << " " << out.last_hidden_state.sizes()
            << "\n";
}
