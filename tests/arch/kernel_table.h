// A level's kernels, as run_kernels.c calls them and arch_kernels.cpp lists them. C.
#pragma once
#include <stdint.h>

typedef void kernel_function(void* const* buffers, int64_t begin, int64_t end, int32_t* error, void* partials,
                             int64_t stage);

struct kernel {
  kernel_function* run;
  int64_t tasks, parts, stages, parted_stages, partial_words;  // of its plan (targets/cpu/plan.h)
};

extern const struct kernel kernels[];
extern const int64_t kernel_count;
