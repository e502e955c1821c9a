#include "io/minja/large_stack.h"

#include <pthread.h>

#include <exception>

#include "graft/error.h"

namespace graft::io {
namespace {

struct Job {
  const std::function<void()>& work;
  std::exception_ptr error = {};
};

void* run(void* argument) {
  auto& job = *static_cast<Job*>(argument);
  try {
    job.work();
  } catch (...) {
    job.error = std::current_exception();
  }
  return nullptr;
}

}  // namespace

void run_on_large_stack(const std::function<void()>& work) {
  constexpr size_t bytes = size_t{256} << 20;  // of address space; memory is what is touched
  Job job{work};
  pthread_attr_t attributes;
  pthread_t thread{};
  pthread_attr_init(&attributes);
  const bool started = pthread_attr_setstacksize(&attributes, bytes) == 0 &&
                       pthread_create(&thread, &attributes, run, &job) == 0;
  pthread_attr_destroy(&attributes);
  if (!started) throw Error("[chat template] no thread with a stack of 256 MiB could be started");
  pthread_join(thread, nullptr);
  if (job.error) std::rethrow_exception(job.error);
}

}  // namespace graft::io
