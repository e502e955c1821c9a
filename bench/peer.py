"""The Python child of `graft bench --against python`: answers requests on standard input, one line of JSON each.

tools/graft/bench/child.h has the protocol. The packages are looked up before anything is imported, so that a missing one is said at once.
"""
import importlib.metadata
import json
import os
import platform
import sys
import time

PACKAGES = ("torch", "transformers", "accelerate", "safetensors", "peft", "llama-cpp-python")


def versions():
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = None
    return found


def timed(call, device):
    import devices

    devices.wait_for(device)
    start = time.perf_counter()
    call()
    devices.wait_for(device)
    return time.perf_counter() - start


class Peer:
    def __init__(self):
        self.work, self.device = None, None

    def rewind(self):
        """Undoes a call, where calls cannot follow each other; it is not timed."""
        getattr(self.work, "rewind", lambda: None)()

    def timed_again(self):
        self.rewind()
        return 1e3 * timed(self.work.call, self.device)

    def facts(self):
        import devices

        known = getattr(self.work, "facts", dict)()
        self.rewind()
        return known | devices.peak_of(self.device, self.work.call)

    def answer(self, request):
        import work  # brings torch

        match request["do"]:
            case "prepare":
                work.prepare()
            case "make":
                work.make_files(request)
            case "load":
                self.work, self.device = work.load(request), request["device"]
            case "first_call":
                return {"seconds": timed(self.work.call, self.device)}
            case "outputs":
                self.rewind()
                self.work.call()
                work.save(self.work.outputs(), request["path"])
            case "nudge":
                self.work.nudge()
            case "facts":
                return self.facts()
            case "run":
                self.timed_again()  # brings the processor's caches back from whoever had them before
                return {"times_ms": [self.timed_again() for _ in range(request["calls"])]}
            case unknown:
                raise ValueError(f"unknown request {unknown!r}")
        return {}


def main():
    # What libraries print must not get between the replies.
    replies = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    print(json.dumps({"versions": versions()}), file=replies)
    peer = Peer()
    for line in sys.stdin:
        request = json.loads(line)
        if request["do"] == "quit":
            print("{}", file=replies)
            return
        try:
            reply = peer.answer(request)
        except Exception as error:  # the parent decides what a failure means
            reply = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(reply), file=replies)


if __name__ == "__main__":
    main()
