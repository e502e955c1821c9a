// The first program of README.md.
#include <graft/graft.h>

#include <iostream>

int main() {
  const auto f = graft::compile([](const at::Tensor& x) { return (x.softmax(-1) * x.sigmoid()).sum(-1); });
  const auto x = at::linspace(-2, 2, 12).view({3, 4});
  std::cout << f(x) << "\n";
  std::cout << graft::counters().kernels << " kernel\n";
}
