// Another number of torch's threads for a while.
#pragma once
#include <ATen/Parallel.h>

namespace graft::testing_tools {

struct Threads {
  explicit Threads(int n) { at::set_num_threads(n); }
  ~Threads() { at::set_num_threads(before); }
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;
  int before = at::get_num_threads();
};

}  // namespace graft::testing_tools
