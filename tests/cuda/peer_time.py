"""The Python side of cuda_time: peer_time.py CONFIG_FOLDER DTYPE BATCH LENGTH [CALLS]. transformers, eager and by torch.compile, with random
weights: first call, median of single calls, each until the GPU is done, and the time of a call where the host runs ahead."""
import statistics
import sys
import time

import torch
from transformers import AutoConfig, AutoModelForCausalLM

folder, dtype, batch, length = sys.argv[1], getattr(torch, sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
calls = int(sys.argv[5]) if len(sys.argv) > 5 else 50
model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folder), dtype=dtype).to("cuda").eval()
ids = torch.randint(0, 1000, (batch, length), device="cuda")


def measure(name, call):
    torch.cuda.synchronize()
    start = time.perf_counter()
    call()
    torch.cuda.synchronize()
    first = (time.perf_counter() - start) * 1e3
    for _ in range(5):
        call()
    single = []
    for _ in range(calls):
        torch.cuda.synchronize()
        start = time.perf_counter()
        call()
        torch.cuda.synchronize()
        single.append((time.perf_counter() - start) * 1e3)
    start = time.perf_counter()
    for _ in range(calls):
        call()
    torch.cuda.synchronize()
    ahead = (time.perf_counter() - start) * 1e3 / calls
    print(f"python {name}: first {first:.0f} ms, single {statistics.median(single):.3f} ms, in a row {ahead:.3f} ms", flush=True)


with torch.no_grad():
    for name, how in [("eager", None), ("compiled", {}), ("reduce-overhead", {"mode": "reduce-overhead"})]:
        torch._dynamo.reset()
        run = torch.compile(model, **how) if how is not None else model
        measure(name, lambda: run(input_ids=ids, use_cache=False).logits)
