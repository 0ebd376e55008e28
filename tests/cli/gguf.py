"""GGUF files for tests: read, change, write. Only what the tests' own files need: version 3, F32, F16 and I32."""
import struct

U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64 = range(13)
SCALARS = {U8: "B", I8: "b", U16: "H", I16: "h", U32: "I", I32: "i", F32: "f", BOOL: "?", U64: "Q", I64: "q", F64: "d"}
DTYPE_F32, DTYPE_F16, DTYPE_I32 = 0, 1, 26
ELEMENT_SIZE = {DTYPE_F32: 4, DTYPE_F16: 2, DTYPE_I32: 4}
ALIGNMENT = 32


class Reader:
    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, form):
        values = struct.unpack_from("<" + form, self.data, self.at)
        self.at += struct.calcsize("<" + form)
        return values[0]

    def string(self):
        size = self.take("Q")
        self.at += size
        return self.data[self.at - size:self.at].decode()

    def value(self, kind):
        if kind == STRING:
            return self.string()
        if kind == ARRAY:
            element, count = self.take("I"), self.take("Q")
            return element, [self.value(element) for _ in range(count)]
        return self.take(SCALARS[kind])


def pack_string(text):
    return struct.pack("<Q", len(text.encode())) + text.encode()


def pack_value(kind, value):
    if kind == STRING:
        return pack_string(value)
    if kind == ARRAY:
        element, items = value
        return struct.pack("<IQ", element, len(items)) + b"".join(pack_value(element, item) for item in items)
    return struct.pack("<" + SCALARS[kind], value)


def padded(data):
    return data + bytes(-len(data) % ALIGNMENT)


class Gguf:
    """keys: name → (type, value); tensors: name → (dims, dtype, bytes). Both keep their order."""

    def __init__(self, path=None):
        self.keys, self.tensors = {}, {}
        if path is not None:
            self.read(path)

    def read(self, path):
        with open(path, "rb") as file:
            reader = Reader(file.read())
        assert reader.take("4s") == b"GGUF" and reader.take("I") == 3
        n_tensors, n_keys = reader.take("Q"), reader.take("Q")
        for _ in range(n_keys):
            key, kind = reader.string(), reader.take("I")
            self.keys[key] = (kind, reader.value(kind))
        table = []
        for _ in range(n_tensors):
            name, n_dims = reader.string(), reader.take("I")
            dims = [reader.take("Q") for _ in range(n_dims)]
            table.append((name, dims, reader.take("I"), reader.take("Q")))
        start = reader.at + -reader.at % ALIGNMENT
        for name, dims, dtype, offset in table:
            size = ELEMENT_SIZE[dtype]
            for extent in dims:
                size *= extent
            self.tensors[name] = (dims, dtype, reader.data[start + offset:start + offset + size])

    def write(self, path):
        head = struct.pack("<4sIQQ", b"GGUF", 3, len(self.tensors), len(self.keys))
        for key, (kind, value) in self.keys.items():
            head += pack_string(key) + struct.pack("<I", kind) + pack_value(kind, value)
        data = b""
        for name, (dims, dtype, payload) in self.tensors.items():
            head += pack_string(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, dtype, len(data))
            data += padded(payload)
        with open(path, "wb") as file:
            file.write(padded(head) + data)
        return path

    def floats(self, name):
        payload = self.tensors[name][2]
        return struct.unpack(f"<{len(payload) // 4}f", payload)

    def rows(self, name):
        width, values = self.tensors[name][0][0], self.floats(name)
        return [values[i:i + width] for i in range(0, len(values), width)]

    def ints(self, name):
        payload = self.tensors[name][2]
        return list(struct.unpack(f"<{len(payload) // 4}i", payload))

    def add_ints(self, name, values):
        self.tensors[name] = ([len(values)], DTYPE_I32, struct.pack(f"<{len(values)}i", *values))
