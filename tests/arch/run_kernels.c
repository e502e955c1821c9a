// Runs the kernels it is linked with on the data in a file, and compares what they store: `run_kernels
// cases`. No torch, no LLVM, plain C: it is compiled for any machine and runs under an emulator.
//
// The file (case_data.cpp writes it) is a sequence of 8-byte words, those of the machine that made it:
//   number of kernels, then for each in the order of the table:
//     its name: bytes, then as many, filled up to whole words
//     number of buffers, for each: type, first element, element after the last
//     number of rounds, for each:
//       whether an index is out of range
//       the contents of each buffer from its first element on, filled up to whole words
//       number of results, for each: buffer (4 bytes), whether NaN is allowed (4 bytes), element, least, most
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "kernel_table.h"

enum type { f64, f32, f16, bf16, i64, i32, i16, i8, u8 };
static const int64_t sizes[] = {8, 4, 2, 2, 8, 4, 2, 1, 1};

struct result {
  int32_t buffer, nan_allowed;
  int64_t element;
  union {
    double number;
    int64_t whole;
  } least, most;
};

enum { most_buffers = 256, margin = 64, most_messages = 20 };
enum { margin_byte = 0x5c, unset_byte = 0xa5 };

struct buffer {
  int64_t type, first, end;
  unsigned char* memory;  // the margin, the elements, the margin
  unsigned char* zeroth;  // element 0, which need not be there
};

static const char* running = "nothing";
static int64_t wrong = 0, compared = 0;

static void say_where(int signal_number) {
  static const char text[] = "\nended by a signal in ";
  ssize_t ignored = write(2, text, sizeof text - 1);
  ignored = write(2, running, strlen(running));
  ignored = write(2, "\n", 1);
  (void)ignored;
  _exit(128 + signal_number);
}

static double half_value(uint16_t bits) {
  const int exponent = bits >> 10 & 31, digits = bits & 1023;
  const double size = exponent == 31  ? (digits ? NAN : INFINITY)
                      : exponent == 0 ? digits * 0x1p-24
                                      : ldexp(1024 + digits, exponent - 25);
  return bits & 0x8000 ? -size : size;
}

static double number_at(int64_t type, const unsigned char* from) {
  double wide;
  float narrow;
  uint16_t half;
  uint32_t bits;
  switch (type) {
    case f64:
      memcpy(&wide, from, sizeof wide);
      return wide;
    case f32:
      memcpy(&narrow, from, sizeof narrow);
      return narrow;
    case f16:
      memcpy(&half, from, sizeof half);
      return half_value(half);
    default:
      memcpy(&half, from, sizeof half);
      bits = (uint32_t)half << 16;
      memcpy(&narrow, &bits, sizeof narrow);
      return narrow;
  }
}

static int64_t whole_at(int64_t type, const unsigned char* from) {
  int64_t x64;
  int32_t x32;
  int16_t x16;
  switch (type) {
    case i64:
      memcpy(&x64, from, sizeof x64);
      return x64;
    case i32:
      memcpy(&x32, from, sizeof x32);
      return x32;
    case i16:
      memcpy(&x16, from, sizeof x16);
      return x16;
    case i8:
      return (signed char)*from;
    default:
      return *from;
  }
}

/// Whether to print one more.
static int note(int64_t round, const char* what) {
  ++wrong;
  if (wrong > most_messages) return 0;
  printf("%s, round %lld: %s\n", running, (long long)round, what);
  return 1;
}

static void check_result(int64_t round, const struct buffer* buffers, const struct result* want) {
  const struct buffer* b = &buffers[want->buffer];
  const unsigned char* at = b->zeroth + want->element * sizes[b->type];
  char text[200];
  ++compared;
  if (b->type <= bf16) {
    const double x = number_at(b->type, at);
    if (x == x ? want->least.number <= x && x <= want->most.number : want->nan_allowed) return;
    snprintf(text, sizeof text, "element %lld of b%d is %.17g, expected %.17g to %.17g%s",
             (long long)want->element, want->buffer, x, want->least.number, want->most.number,
             want->nan_allowed ? " or nan" : "");
  } else {
    const int64_t x = whole_at(b->type, at);
    if (want->least.whole <= x && x <= want->most.whole) return;
    snprintf(text, sizeof text, "element %lld of b%d is %lld, expected %lld to %lld",
             (long long)want->element, want->buffer, (long long)x, (long long)want->least.whole,
             (long long)want->most.whole);
  }
  note(round, text);
}

/// Every other round elements lie at addresses that are multiples of their own size only.
static void place(struct buffer* b, int64_t round, const unsigned char* contents) {
  const int64_t bytes = (b->end - b->first) * sizes[b->type], shift = round % 2 ? sizes[b->type] : 0;
  b->memory = aligned_alloc(64, (size_t)((bytes + 2 * margin + shift + 63) / 64 * 64));
  if (!b->memory) exit(2);
  b->memory += shift;
  memset(b->memory, margin_byte, margin);
  memcpy(b->memory + margin, contents, (size_t)bytes);
  memset(b->memory + margin + bytes, margin_byte, margin);
  b->zeroth = b->memory + margin - b->first * sizes[b->type];
}

static int margins_are_whole(const struct buffer* b) {
  const int64_t bytes = (b->end - b->first) * sizes[b->type];
  for (int i = 0; i < margin; ++i)
    if (b->memory[i] != margin_byte || b->memory[margin + bytes + i] != margin_byte) return 0;
  return 1;
}

/// All tasks of every stage: in one go, or every other round in two.
static void run(const struct kernel* kernel, const struct buffer* buffers, int64_t count, int64_t round,
                int64_t fails) {
  void* starts[most_buffers];
  int32_t error = 0;
  const size_t bytes = (size_t)kernel->partial_words * 8;
  void* partials = bytes ? malloc(bytes) : NULL;
  if (bytes && !partials) exit(2);
  if (bytes) memset(partials, unset_byte, bytes);
  for (int64_t b = 0; b < count; ++b) starts[b] = buffers[b].zeroth;
  for (int64_t stage = 0; stage < kernel->stages; ++stage) {
    const int64_t tasks = stage < kernel->parted_stages ? kernel->tasks * kernel->parts : kernel->tasks;
    const int64_t middle = round % 2 ? tasks / 2 : 0;
    if (middle > 0) kernel->run(starts, 0, middle, &error, partials, stage);
    if (middle < tasks) kernel->run(starts, middle, tasks, &error, partials, stage);
  }
  free(partials);
  if (error && !fails) note(round, "an index is said to be out of range");
  if (!error && fails) note(round, "an index out of range is not noticed");
}

static const int64_t* run_round(const struct kernel* kernel, struct buffer* buffers, int64_t count,
                                int64_t round, const int64_t* word) {
  const int64_t fails = *word++;
  for (int64_t b = 0; b < count; ++b) {
    place(&buffers[b], round, (const unsigned char*)word);
    word += ((buffers[b].end - buffers[b].first) * sizes[buffers[b].type] + 7) / 8;
  }
  run(kernel, buffers, count, round, fails);
  const int64_t results = *word++;
  const struct result* want = (const struct result*)word;
  for (int64_t i = 0; i < results; ++i) check_result(round, buffers, &want[i]);
  for (int64_t b = 0; b < count; ++b) {
    if (!margins_are_whole(&buffers[b])) note(round, "it writes outside of a buffer");
    free(buffers[b].memory - (round % 2 ? sizes[buffers[b].type] : 0));
  }
  return (const int64_t*)(want + results);
}

int main(int argc, char** argv) {
  const int file = argc == 2 ? open(argv[1], O_RDONLY) : -1;
  struct stat facts;
  if (file < 0 || fstat(file, &facts) != 0) {
    fprintf(stderr, "run_kernels CASES: runs the kernels it is linked with on the data in the file\n");
    return 2;
  }
  const int64_t* word = mmap(NULL, (size_t)facts.st_size, PROT_READ, MAP_PRIVATE, file, 0);
  if (word == MAP_FAILED) return 2;
  signal(SIGILL, say_where);
  signal(SIGSEGV, say_where);
  signal(SIGBUS, say_where);
  signal(SIGFPE, say_where);
  signal(SIGABRT, say_where);
  const int64_t count = *word++;
  if (count != kernel_count) {
    fprintf(stderr, "the data is of %lld kernels, not of these %lld\n", (long long)count,
            (long long)kernel_count);
    return 2;
  }
  for (int64_t k = 0; k < count; ++k) {
    struct buffer buffers[most_buffers];
    const int64_t length = *word++;
    char* name = calloc(1, (size_t)length + 1);
    if (!name) return 2;
    memcpy(name, word, (size_t)length);
    running = name;
    word += (length + 7) / 8;
    const int64_t buffer_count = *word++;
    if (buffer_count > most_buffers) return 2;
    for (int64_t b = 0; b < buffer_count; ++b, word += 3)
      buffers[b] = (struct buffer){word[0], word[1], word[2], NULL, NULL};
    const int64_t rounds = *word++;
    for (int64_t round = 0; round < rounds; ++round)
      word = run_round(&kernels[k], buffers, buffer_count, round, word);
    running = "nothing";
    free(name);
  }
  printf("%lld kernels, %lld results, %lld wrong\n", (long long)count, (long long)compared, (long long)wrong);
  return wrong ? 1 : 0;
}
