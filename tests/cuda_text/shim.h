// CUDA C++ as graft generates it, compiled as plain C++ and run on the CPU: what takes the place of the GPU.
//
// Blocks run one after the other. The threads of a block are fibers: one runs until it waits for others or
// leaves. A warp goes on as long as it can before the next one does, and the order of warps and of threads
// turns round after each barrier, so that results are wrong where a barrier is missing. The process ends when
// threads wait for some that never come.
//
// Blocks that never wait run without fibers. The blocks of a cluster each run until they wait for the others.
#pragma once
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#define __global__
#define __device__
#define __forceinline__ inline
#define __noinline__ inline
#define __launch_bounds__(...)
#define __cluster_dims__(...)
#define __shared__ static
#define __grid_constant__

struct uint2 {
  alignas(8) unsigned x;
  unsigned y;
};
struct uint4 {
  alignas(16) unsigned x;
  unsigned y, z, w;
};

namespace shim {

struct Place {
  unsigned x, y, z;
};

enum { warp = 32, most_threads = 1024, stack_bytes = 64 * 1024, most_of_cluster = 8, most_published = 4096 };
enum What { runs, in_block_barrier, in_warp_barrier, in_cluster_barrier, has_left };

struct Thread {
  ucontext_t context;
  What what;
  int line;  // where it waits
};

/// What a block keeps while others of its cluster run.
struct Block {
  Thread* all;
  char* stacks;
  const float* shared;  // what it has published, and a copy of that
  float published[most_published];
};

struct State {
  Place thread, block, blocks, threads;
  bool fibers;
  ucontext_t scheduler;
  Thread* all;  // of the block that runs
  Block cluster[most_of_cluster];
  unsigned place;  // in the cluster
  void (*body)(void*);
  void* argument;
  // Of each warp: what its lanes give to each other. Two sets take turns, so that one can be filled while
  // the other is still being read.
  uint64_t given[most_threads / warp][2][warp];
  int set[most_threads];
  bool votes[most_threads];
};
inline State state;

[[noreturn]] inline void fail(const char* what) {
  int counts[5] = {}, line = 0;
  if (state.all)
    for (unsigned i = 0; i < state.threads.x; ++i) {
      ++counts[state.all[i].what];
      if (state.all[i].what == in_block_barrier || state.all[i].what == in_warp_barrier)
        line = state.all[i].line;
    }
  fprintf(stderr, "block %u: %s: of %u threads %d wait for the block, %d for a warp, %d have left; line %d\n",
          state.block.x, what, state.threads.x, counts[in_block_barrier], counts[in_warp_barrier],
          counts[has_left], line);
  abort();
}

inline void wait(What what, int line) {
  if (!state.fibers) fail("a thread waits, but the kernel is said not to");
  auto& mine = state.all[state.thread.x];
  mine.what = what;
  mine.line = line;
  swapcontext(&mine.context, &state.scheduler);
}

inline void start_thread() {
  state.body(state.argument);
  state.all[state.thread.x].what = has_left;
}  // and on to the scheduler (uc_link)

/// Those who all wait at the same place may go on. Whether there are any.
inline bool let_go(What what, unsigned begin, unsigned end) {
  const int line = state.all[begin].line;
  for (unsigned i = begin; i < end; ++i) {
    if (state.all[i].what != what) return false;
    if (state.all[i].line != line) fail("threads wait at different places");
  }
  for (unsigned i = begin; i < end; ++i) state.all[i].what = runs;
  return true;
}

/// As far as it comes without other warps.
inline void run_warp(unsigned first, bool back) {
  do {
    for (unsigned n = 0; n < warp; ++n) {
      const unsigned i = back ? first + warp - 1 - n : first + n;
      if (state.all[i].what != runs) continue;
      state.thread.x = i;
      swapcontext(&state.scheduler, &state.all[i].context);
    }
  } while (let_go(in_warp_barrier, first, first + warp));
}

inline void start_fibers(Block& block) {
  block.shared = nullptr;
  const unsigned count = state.threads.x;
  if (!block.all) {
    block.all = static_cast<Thread*>(calloc(most_threads, sizeof(Thread)));
    block.stacks = static_cast<char*>(malloc(size_t(most_threads) * stack_bytes));
    if (!block.all || !block.stacks) exit(2);
  }
  for (unsigned i = 0; i < count; ++i) {
    auto& thread = block.all[i];
    thread.what = runs;
    getcontext(&thread.context);
    thread.context.uc_stack.ss_sp = block.stacks + size_t(i) * stack_bytes;
    thread.context.uc_stack.ss_size = stack_bytes;
    thread.context.uc_link = &state.scheduler;
    makecontext(&thread.context, start_thread, 0);
  }
}

/// Until all have left, or wait for other blocks. Whether they have left.
inline bool run_fibers(Block& block) {
  const unsigned count = state.threads.x;
  state.all = block.all;
  for (unsigned i = 0; i < count; ++i) state.set[i] = 0;
  for (bool back = false;; back = !back) {
    for (unsigned n = 0; n < count; n += warp) run_warp(back ? count - warp - n : n, back);
    unsigned left = 0;
    for (unsigned i = 0; i < count; ++i) left += state.all[i].what == has_left;
    if (left == count) return true;
    if (let_go(in_cluster_barrier, 0, count)) return false;
    if (!let_go(in_block_barrier, 0, count)) fail("threads wait for some that do not come");
  }
}

/// So many neighbours along x, which begin and leave together.
inline void run_cluster(unsigned first, unsigned count) {
  for (unsigned i = 0; i < count; ++i) start_fibers(state.cluster[i]);
  for (unsigned left = 0; left == 0;) {
    for (unsigned i = 0; i < count; ++i) {
      state.block.x = first + i;
      state.place = i;
      left += run_fibers(state.cluster[i]);
    }
    if (left != 0 && left != count) fail("some blocks wait for others that have left");
  }
}

struct Launch {
  unsigned blocks, threads;
  bool fibers;
  unsigned of_cluster = 1;
};

/// The blocks from `begin` to before `end`.
template <class Body>
void run_blocks(const Launch& launch, int64_t begin, int64_t end, Body body) {
  state.blocks.x = launch.blocks;
  state.threads.x = launch.threads;
  state.fibers = launch.fibers;
  state.body = [](void* argument) { (*static_cast<Body*>(argument))(); };
  state.argument = &body;
  for (int64_t block = begin; block < end; block += launch.of_cluster) {
    state.block.x = static_cast<unsigned>(block);
    if (launch.fibers)
      run_cluster(state.block.x, launch.of_cluster);
    else
      for (state.thread.x = 0; state.thread.x < launch.threads; ++state.thread.x) body();
  }
}

/// What each lane of the warp has.
template <class T>
const uint64_t* shown(T x, int line) {
  static_assert(sizeof(T) <= 8);
  const unsigned me = state.thread.x;
  const int set = state.set[me] = 1 - state.set[me];
  auto& given = state.given[me / warp][set];
  memcpy(&given[me % warp], &x, sizeof x);
  wait(in_warp_barrier, line);
  return given;
}

template <class T>
T exchanged(T x, int distance, int line) {
  const auto* given = shown(x, line);
  memcpy(&x, &given[(state.thread.x % warp) ^ static_cast<unsigned>(distance)], sizeof x);
  return x;
}

/// The matrix units' product of tiles of bfloat16, [16, 16] x [16, 8], with the elements where lanes have
/// them.
inline void multiply_tile(float* sum, unsigned a0, unsigned a1, unsigned a2, unsigned a3, unsigned b0,
                          unsigned b1, int line) {
  float a[16][16], b[16][8];
  const auto both = [](unsigned x, unsigned y) { return uint64_t(x) | uint64_t(y) << 32; };
  const auto number = [](uint64_t words, int which) {
    const uint32_t bits = static_cast<uint32_t>(words >> (16 * which) & 0xffff) << 16;
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
  };
  for (int half = 0; half < 2; ++half) {
    const auto* words = shown(half ? both(a2, a3) : both(a0, a1), line);
    for (int lane = 0; lane < warp; ++lane)
      for (int e = 0; e < 2; ++e) {
        a[lane / 4][lane % 4 * 2 + e + half * 8] = number(words[lane], e);
        a[lane / 4 + 8][lane % 4 * 2 + e + half * 8] = number(words[lane], 2 + e);
      }
  }
  const auto* words = shown(both(b0, b1), line);
  for (int lane = 0; lane < warp; ++lane)
    for (int e = 0; e < 4; ++e) b[lane % 4 * 2 + e % 2 + e / 2 * 8][lane / 4] = number(words[lane], e);
  const int lane = static_cast<int>(state.thread.x % warp);
  for (int i = 0; i < 4; ++i)
    for (int k = 0; k < 16; ++k) sum[i] += a[lane / 4 + i / 2 * 8][k] * b[k][lane % 4 * 2 + i % 2];
}

/// Whether one of the block's threads says yes.
inline bool any_of_block(bool mine, int line) {
  state.votes[state.thread.x] = mine;
  wait(in_block_barrier, line);
  bool found = false;
  for (unsigned i = 0; i < state.threads.x; ++i) found = found || state.votes[i];
  wait(in_block_barrier, line);
  return found;
}

/// `count` numbers of shared memory, for all blocks of the cluster.
inline void publish(const float* shared, int count, int line) {
  auto& mine = state.cluster[state.place];
  wait(in_block_barrier, line);
  mine.shared = shared;
  if (count > most_published) fail("more is published than there is room for");
  for (int i = 0; i < count && state.thread.x == 0; ++i) mine.published[i] = shared[i];
  wait(in_cluster_barrier, line);
}
inline float published(const float* mine, int block) {
  const auto &here = state.cluster[state.place], &there = state.cluster[block];
  if (!here.shared || !there.shared) fail("what is read is not published");
  return there.published[mine - here.shared];
}

template <class To, class From>
To with_bits_of(From x) {
  static_assert(sizeof(To) == sizeof(From));
  To y;
  memcpy(&y, &x, sizeof y);
  return y;
}

}  // namespace shim

#define threadIdx shim::state.thread
#define blockIdx shim::state.block
#define blockDim shim::state.threads
#define gridDim shim::state.blocks
#define __syncthreads() shim::wait(shim::in_block_barrier, __LINE__)
#define __syncthreads_or(x) shim::any_of_block(x, __LINE__)
#define __syncwarp() shim::wait(shim::in_warp_barrier, __LINE__)
#define __shfl_xor_sync(mask, x, distance) shim::exchanged(x, distance, __LINE__)
inline void store_words(unsigned* to, unsigned a, unsigned b, unsigned c, unsigned d) {
  *reinterpret_cast<uint4*>(to) = {a, b, c, d};
}
#define publish(...) shim::publish(__VA_ARGS__, __LINE__)
#define published(...) shim::published(__VA_ARGS__)
#define leave_cluster() shim::wait(shim::in_cluster_barrier, __LINE__)
#define multiply_tile(...) shim::multiply_tile(__VA_ARGS__, __LINE__)
#define __float_as_int(x) shim::with_bits_of<int>(static_cast<float>(x))
#define __int_as_float(x) shim::with_bits_of<float>(static_cast<int>(x))
#define __longlong_as_double(x) shim::with_bits_of<double>(static_cast<long long>(x))

// In the place of cuda::conversions(). Rounded to the nearest, ties to even.
typedef long long i64;
typedef unsigned short u16;
inline float half_to_float(u16 x) {
  const int exponent = x >> 10 & 31, digits = x & 1023;
  const float size = exponent == 31  ? (digits ? NAN : INFINITY)
                     : exponent == 0 ? digits * 0x1p-24f
                                     : ldexpf(float(1024 + digits), exponent - 25);
  return x & 0x8000 ? -size : size;
}
inline u16 float_to_half(float x) {
  const auto sign = static_cast<u16>(shim::with_bits_of<uint32_t>(x) >> 16 & 0x8000);
  const float size = fabsf(x);
  if (x != x) return 0x7fff;
  if (size >= 65520) return sign | 0x7c00;
  if (size < 0x1p-14f) return sign | static_cast<u16>(rintf(size * 0x1p24f));
  const int exponent = ilogbf(size);  // digits that round up to the next power carry into the exponent
  return sign |
         static_cast<u16>(((exponent + 14) << 10) + static_cast<int>(rintf(ldexpf(size, 10 - exponent))));
}
inline void fail(int* failed, int mark) { *failed = mark; }
inline void begin() {}
inline float bf16_to_float(u16 x) { return shim::with_bits_of<float>(uint32_t(x) << 16); }
inline u16 float_to_bf16(float x) {
  const auto bits = shim::with_bits_of<uint32_t>(x);
  if (x != x) return 0x7fff;
  return static_cast<u16>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
inline unsigned two_halves(float x, float y) { return float_to_half(x) | unsigned(float_to_half(y)) << 16; }
inline unsigned two_bf16(float x, float y) { return float_to_bf16(x) | unsigned(float_to_bf16(y)) << 16; }
