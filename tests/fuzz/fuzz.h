// What the fuzz targets share.
#pragma once
#include <cstdio>
#include <cstdlib>

/// Like assert, but never compiled out: libFuzzer keeps the input when the program aborts.
#define FUZZ_CHECK(condition)                                                                \
  do {                                                                                       \
    if (!(condition)) {                                                                      \
      std::fprintf(stderr, "%s:%d: invariant broken: %s\n", __FILE__, __LINE__, #condition); \
      std::abort();                                                                          \
    }                                                                                        \
  } while (false)
