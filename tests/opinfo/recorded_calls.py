"""What operators some Python code calls, as data that C++ can follow: the calls that a C++ user would write, not what they are made of.

The key PreDispatch comes before all others, so a mode there sees `aten::linear` and not the product and the sum.
"""
import ctypes
from contextlib import contextmanager

import torch
from torch._dispatch.python import enable_python_dispatcher, no_python_dispatcher
from torch._subclasses.schema_check_mode import SchemaCheckMode


class NotExported(Exception):
    """Why a case cannot be written down."""


class Storages:
    """The memory of tensors, each storage once, one after the other in a file."""

    def __init__(self, blob):
        self.blob, self.numbers, self.places = blob, {}, []

    def number_of(self, tensor):
        storage = tensor.untyped_storage()
        if storage._cdata not in self.numbers:
            self.numbers[storage._cdata] = len(self.places)
            self.places.append(write_storage(self.blob, storage))
        return self.numbers[storage._cdata]


def bytes_of(storage):
    return ctypes.string_at(storage.data_ptr(), storage.nbytes()) if storage.nbytes() else b""


def write_storage(blob, storage):
    """[offset, bytes] in the file."""
    blob.write(b"\0" * (-blob.tell() % 64))
    start = blob.tell()
    blob.write(bytes_of(storage))
    return [start, storage.nbytes()]


def name_of(enumerated):
    """torch.float32 is "float32"."""
    return str(enumerated).removeprefix("torch.")


class Recorder(SchemaCheckMode):
    """Writes down the calls made while it is on. (A mode of another class is not let in at this key.) Tensors are numbered: the inputs first,
    then what appears from nowhere, a constant of the code."""

    def __init__(self, inputs, blob):
        super().__init__()
        self._dispatch_key = torch._C.DispatchKey.PreDispatch
        self.storages = Storages(blob)
        self.tensors, self.calls = [], []
        self.where = {}  # of a tensor object: what is written for it
        self.kept = []  # else an object's id could be used again
        for tensor in inputs:
            self.add_tensor(tensor)
        self.input_count = len(self.tensors)

    def add_tensor(self, tensor):
        if tensor.layout != torch.strided or tensor.is_quantized or tensor.is_nested:
            raise NotExported(f"a tensor of layout {name_of(tensor.layout)}")
        if tensor.device.type != "cpu":
            raise NotExported(f"a tensor on {tensor.device.type}")
        self.where[id(tensor)] = {"t": len(self.tensors)}
        self.kept.append(tensor)
        plain = tensor.detach()
        self.tensors.append({"storage": self.storages.number_of(tensor), "dtype": name_of(plain.dtype), "sizes": list(plain.shape),
                             "strides": list(plain.stride()), "offset": plain.storage_offset(), "grad": tensor.requires_grad,
                             "conj": plain.is_conj(), "neg": plain.is_neg()})

    @contextmanager
    def recording(self):
        with enable_python_dispatcher(), self:
            yield

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func.namespace not in ("aten", "prim"):
            raise NotExported(f"{func}, which is Python code")
        # A tensor may be given another storage by the call: it is described as it was before.
        described = self.described(func, args, kwargs)
        with no_python_dispatcher():
            result = func(*args, **kwargs)
        self.note_results(result, len(self.calls))
        self.calls.append(described)
        return result

    def described(self, func, args, kwargs):
        given = {}
        for position, argument in enumerate(func._schema.arguments):
            if position < len(args):
                given[argument.name] = args[position]
            elif argument.name in kwargs:
                given[argument.name] = kwargs[argument.name]
        name = func._schema.name + ("." + func._schema.overload_name if func._schema.overload_name else "")
        return {"op": name, "args": {key: self.value(each, func) for key, each in given.items()}}

    def note_results(self, result, call):
        items = result if isinstance(result, (tuple, list)) else (result,)
        if isinstance(result, list):  # the operator's one result is a list
            named = [(item, [call, 0, i]) for i, item in enumerate(items)]
        else:
            named = []
            for i, item in enumerate(items):
                named += [(each, [call, i, k]) for k, each in enumerate(item)] if isinstance(item, list) else [(item, [call, i])]
        for item, place in named:
            if isinstance(item, torch.Tensor) and id(item) not in self.where:
                self.where[id(item)] = {"r": place}
                self.kept.append(item)

    def value(self, value, func=None):
        if isinstance(value, torch.Tensor):
            if id(value) not in self.where:
                # Numbers of the code become tensors of no dimension on their way into an operator.
                if func and value.dim() == 0 and not value.requires_grad and func is not torch.ops.aten.lift_fresh.default:
                    return self.value(value.item())
                self.add_tensor(value)
            return self.where[id(value)]
        if value is None or isinstance(value, (bool, int)):
            return value
        if isinstance(value, float):
            return {"f": value.hex()}
        if isinstance(value, complex):
            return {"c": [value.real.hex(), value.imag.hex()]}
        if isinstance(value, str):
            return {"s": value}
        if isinstance(value, (list, tuple)):
            return [self.value(each, func) for each in value]
        for kind, name in ((torch.dtype, "dtype"), (torch.layout, "layout"), (torch.memory_format, "memory_format"), (torch.device, "device")):
            if isinstance(value, kind):
                return {name: name_of(value)}
        raise NotExported(f"an argument of type {type(value).__name__}")
