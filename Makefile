# make demo: set up, build, show the main job.   make test: set up, build, check, test.   make build: the program at build/graft.
SHELL := /bin/bash
export HF_HUB_OFFLINE := 1
export TOKENIZERS_PARALLELISM := false
STAMP := .venv/.setup-done
# The oracle's models are tiny: two processes of one thread each beat one of two. One more than cores: a third of the time they wait.
PYTEST := OMP_NUM_THREADS=1 .venv/bin/python -m pytest -q -n $(shell expr $$(nproc) + 1)

STARTED := $(shell date +%s)

.PHONY: help setup build all demo test test-full check unit pytest fuzz asan tsan gcc bench format clean
help:
	@sed -n '1s/^# //p' Makefile

$(STAMP): scripts/setup.sh scripts/fetch_data.sh requirements.txt requirements-scikit-learn.txt
	@scripts/setup.sh
setup: $(STAMP)

build/build.ninja: $(STAMP) CMakePresets.json
	@cmake --preset release
	@touch $@
build: build/build.ninja
	@ninja -C build --quiet graft_tool
# Also the tests, and the library that `make asan` runs them over.
all: build/build.ninja
	@ninja -C build --quiet all unit_tests_asan
	@.venv/bin/python scripts/build_times.py --dir build --top 12

demo: build/build.ninja
	@ninja -C build --quiet graft_tool make_tiny_bert nearest_sentences
	@scripts/demo.sh

check: build
	@.venv/bin/python scripts/check.py

# What fits CI: the checks, every unit test and oracle row, the unit tests again under ASan and UBSan, a short fuzz run. Each stage is a
# target of its own.
test: $(STAMP)
	@.venv/bin/python scripts/stages.py --since $(STARTED) all check unit fuzz asan pytest

# What steps of every architecture hold takes long to measure: test-full does.
SLOW_UNIT := TrainingMemory.AStepHoldsLessThanEager
unit: build/build.ninja
	@ninja -C build --quiet unit_tests
	@GTEST_FILTER='-$(SLOW_UNIT)' scripts/unit_tests.sh build/tests/unit_tests

pytest:
	@$(PYTEST) -m "not full" tests

# Tests that count runs or bytes, or ask what a call does that is not compared (one that is runs the eager function, which writes, then throws).
NOT_COMPARED = *Memory* *SteadyState* *Counts* *Concurrent* InPlace.ACallThatThrowsHasChangedNothing \
  StaleWeights.OneElementIsAMismatchWithinABoundedNumberOfCalls WatchedGradients.BackwardPassesOfSomeOutputsAreComparedWithEager \
  Prefetch.EveryArchitectureCompiledBlockByBlock
SPACE := $(subst ,, )

# All of it: also TSan, g++, long fuzz runs, and the unit tests with every call compared with eager.
test-full: test tsan gcc
	@build/tests/unit_tests --gtest_brief=1 --gtest_filter='$(SLOW_UNIT)'
	@$(PYTEST) -m full tests
	@GRAFT_TOKENIZER_LINES=12000 $(PYTEST) -m "not full" tests/oracle/test_tokenizer_live.py tests/oracle/test_tokenizer_kinds.py
	@$(MAKE) --no-print-directory fuzz FUZZ_SECONDS=600
	@GRAFT_STATEFUL_COUNT=20000 GRAFT_STATEFUL_KINDS=50 build/tests/unit_tests --gtest_brief=1 --gtest_filter='StatefulFuzz.*'
	@GRAFT_ADAPTER_STORIES=1000 build/tests/unit_tests --gtest_brief=1 --gtest_filter='StatefulAdapters.*'
	@GRAFT_VERIFY_EVERY=1 build/tests/unit_tests --gtest_brief=1 --gtest_filter='-$(subst $(SPACE),:,$(strip $(NOT_COMPARED)))'
	@$(MAKE) --no-print-directory asan ASAN_PROGRAMS=300 ASAN_FILTER=*

# Sanitizers cannot see into generated code: here without the suites that run every operator over it, and with few random programs;
# test-full has them all.
ASAN_FILTER := -*LoweringOps*:*LoweringGradients*:*VectorMath*:*PointwiseFuzz*:*Scans.Shapes*:TrainingMemory*:Assisted.Speculative*:Prefetch.EveryArchitectureCompiled*
asan: build/build.ninja
	@ninja -C build --quiet unit_tests_asan
	@GTEST_FILTER='$(ASAN_FILTER)' GRAFT_FUZZ_COUNT=$(or $(ASAN_PROGRAMS),8) GRAFT_STATEFUL_COUNT=$(or $(ASAN_PROGRAMS),40) \
	  GRAFT_ADAPTER_STORIES=$(or $(ASAN_PROGRAMS),4) \
	  scripts/unit_tests.sh build/tests/unit_tests_asan

# One OpenMP thread: libgomp is not instrumented, so TSan sees none of its barriers and would report torch's own loops. Tests that ask for several are left out.
tsan: $(STAMP)
	@[ -f build-tsan/build.ninja ] || cmake --preset tsan
	@ninja -C build-tsan --quiet unit_tests
	@OMP_NUM_THREADS=1 TSAN_OPTIONS=suppressions=tests/tsan.supp build-tsan/tests/unit_tests --gtest_brief=1 \
	  --gtest_filter='*Concurrent*:*Threads*-Scatter.*:SteadyState.KernelsRunOnTorchsThreads'

gcc: $(STAMP)
	@[ -f build-gcc/build.ninja ] || cmake --preset gcc
	@ninja -C build-gcc --quiet unit_tests
	@scripts/unit_tests.sh build-gcc/tests/unit_tests

fuzz: $(STAMP)
	@scripts/fuzz.sh $(or $(FUZZ_SECONDS),10)

# graft against Python, about an hour; `make bench ROWS=llama6` measures some rows. docs/benchmarks.md says how to read it.
bench: build
	@build/graft bench --against python --html build/bench.html --json build/bench.json $(if $(ROWS),--only $(ROWS))

format:
	@git ls-files -co --exclude-standard '*.cpp' '*.h' | xargs clang-format-19 -i

clean:
	rm -rf build build-*
