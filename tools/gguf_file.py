"""GGUF files for the tools: reads the keys and the table of tensors of a file, and writes files of any size, tensor
after tensor, with nothing but Python's standard library (3.8). Version 3, little-endian, one file.
"""
import contextlib
import mmap
import os
import pathlib
import struct

U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64 = range(13)
SCALARS = {U8: "<B", I8: "<b", U16: "<H", I16: "<h", U32: "<I", I32: "<i", F32: "<f", BOOL: "<?", U64: "<Q",
           I64: "<q", F64: "<d"}
# name: (number in the file, elements of a block, bytes of a block)
DTYPES = {
    "F32": (0, 1, 4), "F16": (1, 1, 2), "BF16": (30, 1, 2),
    "Q4_0": (2, 32, 18), "Q4_1": (3, 32, 20), "Q5_0": (6, 32, 22), "Q5_1": (7, 32, 24), "Q8_0": (8, 32, 34),
    "Q2_K": (10, 256, 84), "Q3_K": (11, 256, 110), "Q4_K": (12, 256, 144), "Q5_K": (13, 256, 176),
    "Q6_K": (14, 256, 210), "MXFP4": (39, 32, 17),
}
NAMES = {number: name for name, (number, _, _) in DTYPES.items()}
ALIGNMENT = 32


class Failure(Exception):
    """What went wrong and what to do, for the user."""


def tensor_bytes(dims, dtype):
    """The size of a tensor's data; dims[0] is contiguous."""
    _, block, size = DTYPES[dtype]
    if dims[0] % block:
        raise Failure(f"rows of {dims[0]} are not whole blocks of {block} ({dtype})")
    total = dims[0] // block * size
    for extent in dims[1:]:
        total *= extent
    return total


class Tensor:
    def __init__(self, dims, dtype, offset):
        self.dims, self.dtype, self.offset = dims, dtype, offset


class Reader:
    """keys: {key: (type, value, bytes as in the file)}, where a value is a scalar or text, and None for an array;
    tensors: {name: Tensor}; data(tensor): its bytes. Close it, or use it in `with`."""

    def __init__(self, path):
        self.path = path
        with open(path, "rb") as file:
            try:
                self.file = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            except ValueError as error:
                raise Failure(f"{path}: {error}") from error
        self.at = 0
        self.keys, self.tensors = {}, {}
        try:
            self._read_head()
        except (struct.error, UnicodeDecodeError, KeyError, IndexError) as error:
            raise Failure(f"{path}: not a GGUF file that this tool reads ({error})") from error

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.file.close()

    def _take(self, form):
        value = struct.unpack_from(form, self.file, self.at)[0]
        self.at += struct.calcsize(form)
        return value

    def _text(self):
        size = self._take("<Q")
        self.at += size
        return self.file[self.at - size:self.at].decode()

    def _value(self, kind):
        if kind == STRING:
            return self._text()
        if kind != ARRAY:
            return self._take(SCALARS[kind])
        element, count = self._take("<I"), self._take("<Q")
        if element == STRING or element == ARRAY:
            for _ in range(count):
                self._value(element)
        else:
            self.at += struct.calcsize(SCALARS[element]) * count
        return None

    def _read_head(self):
        if self._take("<4s") != b"GGUF" or self._take("<I") not in (2, 3):
            raise Failure(f"{self.path}: not a GGUF file of version 2 or 3")
        n_tensors, n_keys = self._take("<Q"), self._take("<Q")
        for _ in range(n_keys):
            begin = self.at
            key, kind = self._text(), self._take("<I")
            value = self._value(kind)
            self.keys[key] = (kind, value, self.file[begin:self.at])
        alignment = self.keys.get("general.alignment", (U32, ALIGNMENT))[1]
        for _ in range(n_tensors):
            name, n_dims = self._text(), self._take("<I")
            dims = [self._take("<Q") for _ in range(n_dims)]
            number, offset = self._take("<I"), self._take("<Q")
            if number not in NAMES:
                raise Failure(f"{self.path}: {name}: this tool does not know the dtype of number {number}")
            self.tensors[name] = Tensor(dims, NAMES[number], offset)
        self.start = self.at + -self.at % alignment
        for name, tensor in self.tensors.items():
            if self.start + tensor.offset + tensor_bytes(tensor.dims, tensor.dtype) > len(self.file):
                raise Failure(f"{self.path}: the data of {name} is not all there")

    def value(self, key):
        """A scalar or text."""
        if key not in self.keys or self.keys[key][1] is None:
            raise Failure(f"{self.path}: the key {key} is missing")
        return self.keys[key][1]

    def data(self, tensor):
        begin = self.start + tensor.offset
        return self.file[begin:begin + tensor_bytes(tensor.dims, tensor.dtype)]


def pack_text(text):
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def pack_value(kind, value):
    """An array's value is (type of the elements, list)."""
    if kind == STRING:
        return pack_text(value)
    if kind == ARRAY:
        element, items = value
        return struct.pack("<IQ", element, len(items)) + b"".join(pack_value(element, item) for item in items)
    return struct.pack(SCALARS[kind], value)


class Writer:
    """Keys and tensors are announced, then write() asks each tensor for its data, in order, in pieces."""

    def __init__(self):
        self.keys, self.tensors = [], []

    def add_raw_key(self, data):
        self.keys.append(data)

    def add_key(self, key, kind, value):
        self.add_raw_key(pack_text(key) + struct.pack("<I", kind) + pack_value(kind, value))

    def add_tensor(self, name, dims, dtype, pieces):
        """pieces: a function without arguments whose result is iterated over, for bytes."""
        self.tensors.append((name, dims, dtype, tensor_bytes(dims, dtype), pieces))

    def size(self):
        return sum(size for _, _, _, size, _ in self.tensors)

    def _head(self):
        head = [struct.pack("<4sIQQ", b"GGUF", 3, len(self.tensors), len(self.keys)), *self.keys]
        offset = 0
        for name, dims, dtype, size, _ in self.tensors:
            head.append(pack_text(name))
            head.append(struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, DTYPES[dtype][0], offset))
            offset += size + -size % ALIGNMENT
        data = b"".join(head)
        return data + bytes(-len(data) % ALIGNMENT)

    def write(self, path):
        """The file appears whole or not at all: it is written beside its place and renamed."""
        path = pathlib.Path(path)
        beside = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            with open(beside, "wb") as file:
                file.write(self._head())
                for name, _, _, size, pieces in self.tensors:
                    written = 0
                    for piece in pieces():
                        file.write(piece)
                        written += len(piece)
                    if written != size:
                        raise AssertionError(f"{name}: {written} bytes, not {size}")
                    file.write(bytes(-size % ALIGNMENT))
            os.replace(beside, path)
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(beside)
