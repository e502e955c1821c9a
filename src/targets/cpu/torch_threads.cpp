#include "targets/cpu/torch_threads.h"

#include <ATen/Parallel.h>
#include <c10/util/ParallelGuard.h>

#include <algorithm>

// What `#pragma omp parallel` becomes under g++; LLVM's and Intel's runtimes have it under this name, too.
// Called by name because the threads must be torch's own whoever compiles this: clang would want a second
// runtime, with threads of its own beside torch's.
extern "C" {
void GOMP_parallel(void (*body)(void*), void* data, unsigned threads, unsigned flags);
int omp_get_num_threads();
int omp_get_thread_num();
}

namespace graft::cpu {

void parallel_for(int64_t end, int64_t grain, c10::function_ref<void(int64_t, int64_t)> body) {
  at::internal::lazy_init_num_threads();
  if (end <= grain || at::in_parallel_region() || at::get_num_threads() == 1) {
    const at::internal::ThreadIdGuard thread(0);
    const c10::ParallelGuard guard(true);
    return body(0, end);
  }
  struct Team {
    int64_t end, grain;
    c10::function_ref<void(int64_t, int64_t)> body;
  } team{end, grain, body};
  const auto member = [](void* data) {
    const auto& [end, grain, body] = *static_cast<const Team*>(data);
    const int64_t threads = std::min<int64_t>(omp_get_num_threads(), at::divup(end, grain));
    const int64_t chunk = at::divup(end, threads);
    const int64_t begin = omp_get_thread_num() * chunk;
    if (begin >= end) return;
    const at::internal::ThreadIdGuard thread(omp_get_thread_num());
    const c10::ParallelGuard guard(true);
    body(begin, std::min(end, begin + chunk));
  };
  GOMP_parallel(member, &team, 0, 0);
}

}  // namespace graft::cpu
