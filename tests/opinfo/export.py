"""Writes PyTorch's own sample inputs (torch.testing._internal's op_db) as cases for opinfo_driver: operators to call, and tensors.

    export.py FOLDER [--ops NAME,...] [--dtypes NAME,...] [--spread N] [--part I/N]

FOLDER gets cases.jsonl, one case a line, tensors.bin with the memory of their tensors, and skipped.json, what was not written, with reasons.
A case is one sample of one operator in one form:
    function    the operator itself, with gradients where it has them
    in_place    its in-place form on a copy of the input, or on the input itself where there are no gradients
    out         its form that writes its result into given tensors
    written     the result of a view of a copy is multiplied in place; the case gives both
--spread takes N cases of all, of each operator about as many, with its dtypes, samples and forms in turn; --part divides the operators among
processes.
"""
import argparse
import ctypes
import json
import random
import warnings
from collections import Counter
from itertools import islice
from pathlib import Path

import numpy
import torch
from torch.utils._pytree import tree_flatten, tree_unflatten
from torch.testing._internal.common_methods_invocations import op_db

from recorded_calls import NotExported, Recorder, bytes_of, write_storage

DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.bool, torch.complex64)
SAMPLES_OF_OTHER_FORMS = 3  # of each operator and dtype


def name_of(op):
    return op.name + (f"[{op.variant_test_name}]" if op.variant_test_name else "")


def seed(value):
    torch.manual_seed(value)
    random.seed(value)
    numpy.random.seed(value)


def samples_of(op, dtype, requires_grad, with_seed, most=None):
    seed(with_seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return list(islice(op.sample_inputs("cpu", dtype, requires_grad=requires_grad, set_seed=False), most))


def parts_of(sample):
    return tree_flatten((sample.input, sample.args, sample.kwargs))


def tensors_among(leaves):
    return [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]


def unique(tensors):
    return list({id(tensor): tensor for tensor in tensors}.values())


def layout_of(tensor):
    places = (tensor.stride(), tensor.storage_offset()) if tensor.layout == torch.strided else None
    return tensor.dtype, tensor.layout, tensor.shape, places, tensor.requires_grad


def has_same_form(sample, other):
    """Whether two samples differ in their tensors' numbers only."""
    mine, shape = parts_of(sample)
    theirs, other_shape = parts_of(other)
    if shape != other_shape:
        return False

    def same(a, b):
        if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
            return (layout_of(a) == layout_of(b) and a.layout == torch.strided
                    and a.untyped_storage().nbytes() == b.untyped_storage().nbytes())
        return type(a) is type(b) and (a == b or a != a)

    return all(same(a, b) for a, b in zip(mine, theirs))


class Form:
    """One way to call an operator. `inputs` are tensors that the case is given, `call` makes its results of them."""

    def __init__(self, name, inputs, others, call):
        self.name, self.inputs, self.others, self.call = name, inputs, others, call


def with_tensors(sample, tensors):
    leaves, shape = parts_of(sample)
    replacement = iter(tensors)
    return tree_unflatten([next(replacement) if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves], shape)


def forms_of(op, sample, other, with_gradients, all_forms):
    tensors = tensors_among(parts_of(sample)[0])
    others = tensors_among(parts_of(other)[0]) if other else None
    process = sample.output_process_fn_grad if with_gradients else (lambda result: result)
    yield Form("function", tensors, others, lambda: process(op(sample.input, *sample.args, **sample.kwargs)))
    if not all_forms or not isinstance(sample.input, torch.Tensor):
        return
    in_place = op.get_inplace()
    if in_place is not None and not sample.broadcasts_input:
        copies = with_gradients and sample.input.requires_grad
        target = (lambda: sample.input.clone()) if copies else (lambda: sample.input)
        yield Form("in_place", tensors, others, lambda: in_place(target(), *sample.args, **sample.kwargs))
    plain = [tensor.detach() for tensor in tensors]
    if op.supports_out:
        taken, args, kwargs = with_tensors(sample, plain)
        with torch.no_grad():
            expected = op(taken, *args, **kwargs)
        single = isinstance(expected, torch.Tensor)
        out = [torch.zeros_like(each) for each in ([expected] if single else expected)]
        yield Form("out", plain + out, [each.detach() for each in others] + out if others else None,
                   lambda: op(taken, *args, **kwargs, out=out[0] if single else tuple(out)))
    if shows_its_input(op, sample):
        def written():
            copy = sample.input.clone()
            view = op(copy, *sample.args, **sample.kwargs)
            views = view if isinstance(view, (tuple, list)) else [view]
            if views[0].dtype == torch.bool:
                views[0].logical_not_()
            else:
                views[0].mul_(2)
            return [copy, *views]
        yield Form("written", tensors, others, written)


def shows_its_input(op, sample):
    with torch.no_grad():
        results = tensors_among(tree_flatten(op(sample.input, *sample.args, **sample.kwargs))[0])
    storage = sample.input.untyped_storage()._cdata if sample.input.layout == torch.strided else None
    return bool(results) and all(each.layout == torch.strided and each.untyped_storage()._cdata == storage for each in results)


def storages_of(tensors):
    return unique([tensor.untyped_storage() for tensor in tensors if tensor.layout == torch.strided])


def write_form(form, identity, blob, random_memory):
    """The case as a dictionary. The code runs once, on the tensors
    themselves; what it does to them is undone."""
    inputs = unique(form.inputs)
    recorder = Recorder(inputs, blob)
    other_places = None
    if form.others:
        other_of = {recorder.storages.numbers[a.untyped_storage()._cdata]: b.untyped_storage() for a, b in zip(form.inputs, form.others)}
        other_places = [write_storage(blob, other_of[number]) for number in range(len(recorder.storages.places))]
    saved = [(storage, bytes_of(storage)) for storage in storages_of(form.inputs)]
    seed(1)
    try:
        with recorder.recording():
            result = form.call()
        outputs = [recorder.value(leaf) for leaf in tensors_among(tree_flatten(result)[0])]
    finally:
        for storage, before in saved:
            if storage.nbytes() == len(before):
                ctypes.memmove(storage.data_ptr(), before, len(before))
    return {"id": identity, "inputs": recorder.input_count, "storages": recorder.storages.places, "others": other_places, "tensors": recorder.tensors,
            "calls": recorder.calls, "outputs": outputs, "random_memory": random_memory}


def reason_of(error):
    return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"[:160]


class Export:
    def __init__(self, folder):
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.skipped, self.written = folder, Counter(), 0
        self.cases, self.blob = open(folder / "cases.jsonl", "w"), open(folder / "tensors.bin", "wb")

    def add(self, op, dtype, only=None):
        """All samples in all forms, or `only` the n-th of the first few, in one form."""
        with_gradients = op.supports_autograd and dtype in op.supported_backward_dtypes("cpu")
        most = None if only is None else 8
        try:
            samples, others = (samples_of(op, dtype, with_gradients, each, most) for each in (0, 1))
        except Exception as error:
            self.skipped[f"{name_of(op)} {dtype}: no samples: {reason_of(error)}"] += 1
            return
        for number, sample in enumerate(samples):
            if only is None or number == only % len(samples):
                other = others[number] if number < len(others) and has_same_form(sample, others[number]) else None
                self.add_sample(op, dtype, number, sample, other, with_gradients, only)

    def add_sample(self, op, dtype, number, sample, other, with_gradients, only):
        identity = f"{name_of(op)} {str(dtype).removeprefix('torch.')} {number}"
        forms = forms_of(op, sample, other, with_gradients, number < SAMPLES_OF_OTHER_FORMS)
        while True:
            try:
                form = next(forms, None)
            except Exception as error:
                self.skipped[f"{identity}: eager: {reason_of(error)}"] += 1
                return
            if form is None:
                return
            if only is not None and form.name == "function" and only % 4 == 3:
                continue  # the next form, where there is one
            if self.add_form(op, form, f"{identity} {form.name}") and only is not None:
                return

    def add_form(self, op, form, identity):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                case = write_form(form, identity, self.blob, op.name in RANDOM_MEMORY)
        except NotExported as error:
            self.skipped[f"{identity}: not exported: {error}"] += 1
        except Exception as error:  # eager code refuses it: most often the in-place form, whose result has another dtype
            self.skipped[f"{identity}: eager: {reason_of(error)}"] += 1
        else:
            self.cases.write(json.dumps(case) + "\n")
            self.written += 1
            return True
        return False

    def close(self):
        self.cases.close()
        self.blob.close()
        (self.folder / "skipped.json").write_text(json.dumps(self.skipped, indent=1))


# Their results hold whatever was in memory.
RANDOM_MEMORY = {"empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided", "resize_", "resize_as_"}


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("folder", type=Path)
    options.add_argument("--ops", default="")
    options.add_argument("--dtypes", default="")
    options.add_argument("--spread", type=int)
    options.add_argument("--part", default="0/1")
    args = options.parse_args()
    wanted = set(filter(None, args.ops.split(",")))
    dtypes = [dtype for dtype in DTYPES if not args.dtypes or str(dtype).removeprefix("torch.") in args.dtypes.split(",")]
    part, parts = map(int, args.part.split("/"))
    torch.set_num_threads(1)
    export = Export(args.folder)
    ops = [op for op in op_db if not wanted or op.name in wanted or name_of(op) in wanted][part::parts]
    if args.spread:
        for turn in range(args.spread):
            op = ops[turn * len(ops) // args.spread]
            its = [dtype for dtype in dtypes if dtype in op.supported_dtypes("cpu")]
            if its:
                export.add(op, its[turn % len(its)], only=turn // 2)
    else:
        for op in ops:
            for dtype in dtypes:
                if dtype in op.supported_dtypes("cpu"):
                    export.add(op, dtype)
    export.close()
    print(f"{export.written} cases, {sum(export.skipped.values())} skipped")


if __name__ == "__main__":
    main()
