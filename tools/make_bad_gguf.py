#!/usr/bin/env python3
"""Makes a small valid GGUF model and many malformed variants of it, byte by byte.

usage: make_bad_gguf.py FOLDER

FOLDER/manifest.jsonl has a line a file, {file, what, must, mentions}:
  must "accept":  the file loads as a model, and a forward pass works;
  must "error":   loading it as a model fails with a message that contains one of `mentions` (any case; an empty list
                  asks nothing), and names the key or tensor where there is one;
  must "either":  it may load or not, but nothing crashes, hangs or emits NaN without saying so.
Files of split models that are no case of their own (later parts) are not in the manifest.

No GGUF library is used: the point is to write what a library would not. The output is the same on every run.
"""
import copy
import json
import pathlib
import random
import struct
import sys

U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64 = range(13)
FORMAT = {U8: "<B", I8: "<b", U16: "<H", I16: "<h", U32: "<I", I32: "<i", F32: "<f", BOOL: "<B", U64: "<Q", I64: "<q",
          F64: "<d"}
DTYPE_F32, DTYPE_F16, DTYPE_Q8_0, DTYPE_Q4_K = 0, 1, 8, 12
N_EMBD, N_FF, N_VOCAB, HEAD_DIM = 32, 64, 264, 8


class Raw(bytes):
    """A value that is already encoded."""


def u32(value):
    return struct.pack("<I", value)


def u64(value):
    return struct.pack("<Q", value)


def text(value):
    data = value if isinstance(value, bytes) else value.encode()
    return u64(len(data)) + data


def encode(kind, value):
    """A value of a metadata key; an array is (element type, list)."""
    if isinstance(value, Raw):
        return bytes(value)
    if kind == STRING:
        return text(value)
    if kind == ARRAY:
        element, items = value
        return u32(element) + u64(len(items)) + b"".join(encode(element, item) for item in items)
    return struct.pack(FORMAT[kind], value)


class Tensor:
    """dims: innermost first. offset and n_dims: what the table says instead of the truth, if not None."""

    def __init__(self, name, dims, dtype, data):
        self.name, self.dims, self.dtype, self.data = name, dims, dtype, data
        self.offset = None
        self.n_dims = None


class File:
    """A GGUF file before it is written; fields that are not None override what follows from the rest."""

    def __init__(self):
        self.magic = b"GGUF"
        self.version = 3
        self.alignment = 32
        self.keys = []  # [name, type, value]
        self.tensors = []
        self.n_tensors = None
        self.n_keys = None
        self.final_padding = True
        self.tail = b""

    def key(self, name):
        return next(entry for entry in self.keys if entry[0] == name)

    def set(self, name, kind, value):
        self.key(name)[1:] = [kind, value]

    def add(self, name, kind, value):
        self.keys.append([name, kind, value])

    def remove(self, name):
        self.keys.remove(self.key(name))

    def tensor(self, name):
        return next(tensor for tensor in self.tensors if tensor.name == name)

    def header(self):
        return (self.magic + u32(self.version) + u64(len(self.tensors) if self.n_tensors is None else self.n_tensors) +
                u64(len(self.keys) if self.n_keys is None else self.n_keys))

    def metadata(self):
        return b"".join(text(name) + u32(kind) + encode(kind, value) for name, kind, value in self.keys)

    def pad(self, size):
        return b"\0" * (-size % self.alignment)

    def table_and_data(self):
        table, data = b"", b""
        for i, tensor in enumerate(self.tensors):
            offset = len(data) if tensor.offset is None else tensor.offset
            n_dims = len(tensor.dims) if tensor.n_dims is None else tensor.n_dims
            table += text(tensor.name) + u32(n_dims) + b"".join(u64(n) for n in tensor.dims)
            table += u32(tensor.dtype) + u64(offset)
            data += tensor.data
            if self.final_padding or i < len(self.tensors) - 1:
                data += self.pad(len(data))
        return table, data

    def bytes(self):
        head = self.header() + self.metadata()
        table, data = self.table_and_data()
        head += table
        return head + self.pad(len(head)) + data + self.tail


def halves(values):
    return struct.pack("<%de" % len(values), *values)


def floats(values):
    return struct.pack("<%df" % len(values), *values)


def make_vocabulary():
    tokens = ["<unk>", "<s>", "</s>"] + ["<0x%02X>" % i for i in range(256)] + ["\u2581", "a", "b", "ab", "\u2581a"]
    scores = [0.0] * 259 + [0.0, -1.0, -2.0, -3.0, -4.0]
    types = [2, 3, 3] + [6] * 256 + [1] * 5
    return tokens, scores, types


def make_valid():
    """A llama of one layer, four heads, two key-value heads, with random F16 weights."""
    rng = random.Random(20260)
    model = File()
    for name, kind, value in [
            ("general.architecture", STRING, "llama"), ("general.name", STRING, "tiny"),
            ("llama.context_length", U32, 64), ("llama.embedding_length", U32, N_EMBD), ("llama.block_count", U32, 1),
            ("llama.feed_forward_length", U32, N_FF), ("llama.attention.head_count", U32, 4),
            ("llama.attention.head_count_kv", U32, 2), ("llama.attention.layer_norm_rms_epsilon", F32, 1e-5),
            ("llama.rope.dimension_count", U32, HEAD_DIM), ("llama.rope.freq_base", F32, 10000.0),
            ("llama.vocab_size", U32, N_VOCAB), ("general.file_type", U32, 1),
            ("tokenizer.ggml.model", STRING, "llama")]:
        model.add(name, kind, value)
    tokens, scores, types = make_vocabulary()
    model.add("tokenizer.ggml.tokens", ARRAY, (STRING, tokens))
    model.add("tokenizer.ggml.scores", ARRAY, (F32, scores))
    model.add("tokenizer.ggml.token_type", ARRAY, (I32, types))
    model.add("tokenizer.ggml.bos_token_id", U32, 1)
    model.add("tokenizer.ggml.eos_token_id", U32, 2)
    model.add("tokenizer.ggml.unknown_token_id", U32, 0)
    model.add("tokenizer.ggml.add_bos_token", BOOL, 1)

    def weight(name, *dims):
        count = 1
        for n in dims:
            count *= n
        data = halves([0.1 * (rng.random() + rng.random() - 1.0) for _ in range(count)])
        model.tensors.append(Tensor(name, list(dims), DTYPE_F16, data))

    def norm(name):
        model.tensors.append(Tensor(name, [N_EMBD], DTYPE_F32, floats([1.0] * N_EMBD)))

    weight("token_embd.weight", N_EMBD, N_VOCAB)
    norm("output_norm.weight")
    norm("blk.0.attn_norm.weight")
    weight("blk.0.attn_q.weight", N_EMBD, N_EMBD)
    weight("blk.0.attn_k.weight", N_EMBD, 2 * HEAD_DIM)
    weight("blk.0.attn_v.weight", N_EMBD, 2 * HEAD_DIM)
    weight("blk.0.attn_output.weight", N_EMBD, N_EMBD)
    norm("blk.0.ffn_norm.weight")
    weight("blk.0.ffn_gate.weight", N_EMBD, N_FF)
    weight("blk.0.ffn_up.weight", N_EMBD, N_FF)
    weight("blk.0.ffn_down.weight", N_FF, N_EMBD)
    return model


class Suite:
    def __init__(self, folder):
        self.folder = folder
        self.valid = make_valid()
        self.lines = []

    def write(self, name, data):
        (self.folder / name).write_bytes(data)

    def case(self, name, what, must, mentions, data, extension=".gguf"):
        if isinstance(data, File):
            data = data.bytes()
        self.write(name + extension, data)
        self.lines.append({"file": name + extension, "what": what, "must": must, "mentions": mentions})

    def change(self, name, what, must, mentions, *changes):
        """A case made from the valid model: each change is a function of it."""
        model = copy.deepcopy(self.valid)
        for change in changes:
            change(model)
        self.case(name, what, must, mentions, model)


def setter(name, kind, value):
    return lambda model: model.set(name, kind, value)


def adder(name, kind, value):
    return lambda model: model.add(name, kind, value)


def remover(name):
    return lambda model: model.remove(name)


def field(name, value):
    return lambda model: setattr(model, name, value)


def tensor_field(tensor, name, value):
    return lambda model: setattr(model.tensor(tensor), name, value)


Q = "blk.0.attn_q.weight"
K = "blk.0.attn_k.weight"
ENDS = ["truncated", "end", "short"]
BEYOND = ["offset", "end", "beyond", "attn_q"]


def add_header_cases(suite):
    error, data = "error", suite.valid.bytes()
    suite.case("valid", "the file all others are made from", "accept", [], data)
    suite.case("empty_file", "zero bytes", error, ["magic", "empty", "short", "truncated"], b"")
    suite.case("one_byte", "the first byte of the magic", error, ["magic", "short", "truncated"], data[:1])
    suite.case("three_bytes", "file ends inside the magic", error, ["magic", "short", "truncated", "end"], data[:3])
    suite.case("magic_only", "file ends after the magic", error, ENDS, data[:4])
    suite.change("bad_magic", "magic is GGML", error, ["magic"], field("magic", b"GGML"))
    suite.change("magic_lowercase", "magic is gguf", error, ["magic"], field("magic", b"gguf"))
    for version in (0, 1, 99):
        suite.change("version_%d" % version, "version %d" % version, error, ["version"], field("version", version))
    big = b"GGUF" + struct.pack(">IQQ", 3, len(suite.valid.tensors), len(suite.valid.keys)) + data[24:]
    suite.case("big_endian", "version and counts are big-endian", error, ["endian", "version"], big)
    suite.change("version_2", "version 2, same layout as 3", "accept", [], field("version", 2))
    suite.case("truncated_header", "ends after the version", error, ENDS, data[:12])
    suite.case("truncated_kv", "ends inside the metadata", error, ENDS, data[:300])
    data_start = len(data) - len(suite.valid.table_and_data()[1])
    suite.case("truncated_tensor_info", "ends inside the tensor table", error, ENDS, data[:data_start - 40])
    ends = ["truncated", "end", "beyond", "data", "size"]
    suite.case("truncated_data", "tensor data ends early", error, ends, data[:data_start + 1000])
    suite.case("no_data", "ends before the tensor data", error, ends, data[:data_start])
    suite.case("one_byte_short", "the last tensor lacks one byte", error, ends, data[:-1])
    suite.change("no_final_padding", "no padding after the last tensor", "accept", [], field("final_padding", False))
    suite.change("trailing_garbage", "4 KiB of garbage after the last tensor", "accept", [],
                 field("tail", bytes(i * 37 % 256 for i in range(4096))))
    suite.change("n_tensors_huge", "tensor count 2^60", error, ["tensor"], field("n_tensors", 1 << 60))
    suite.change("n_tensors_max", "tensor count 2^64-1", error, ["tensor"], field("n_tensors", (1 << 64) - 1))
    suite.change("n_tensors_one_more", "tensor count one too many", error, [], field("n_tensors", 12))
    suite.change("n_tensors_zero", "no tensors announced", error, ["tensor", "missing"], field("n_tensors", 0))
    suite.change("n_kv_huge", "metadata count 2^60", error, ["key", "metadata", "kv", "count", "end"],
                 field("n_keys", 1 << 60))
    suite.change("n_kv_one_more", "metadata count one too many", error, [], field("n_keys", 22))


def add_metadata_cases(suite):
    error = "error"
    string = ["string", "length", "end", "general.name"]
    array = ["array", "length", "end", "big"]
    data = bytearray(suite.valid.bytes())
    data[24:32] = u64(1 << 63)
    suite.case("key_length_huge", "first key has length 2^63", error, ["key", "string", "length", "end"], bytes(data))
    for name, what, length in (("string_length_overflow", "2^64-8: offset + length wraps", (1 << 64) - 8),
                               ("string_length_past_end", "2^30, longer than the file", 1 << 30)):
        suite.change(name, "a value string of length " + what, error, string,
                     setter("general.name", STRING, Raw(u64(length) + b"tiny")))
    for name, what, element, count in (
            ("array_length_2_61", "an array of 2^61 u64: the byte count overflows", U64, 1 << 61),
            ("array_length_past_end", "an array of 10^9 f32 in a small file", F32, 10**9),
            ("array_of_strings_huge", "an array of 2^40 strings", STRING, 1 << 40),
            ("array_of_arrays_huge", "an array of 2^40 arrays", ARRAY, 1 << 40)):
        suite.change(name, what, error, array, adder("x.big", ARRAY, Raw(u32(element) + u64(count) + b"\0" * 8)))
    suite.change("array_nested", "an array of arrays in an unknown key", "either", ["array", "nested"],
                 adder("x.nest", ARRAY, (ARRAY, [(I32, [1, 2]), (I32, [])])))
    deep = (u32(ARRAY) + u64(1)) * 10000 + u32(U8) + u64(0)
    suite.change("array_nested_deep", "arrays nested 10000 deep", error, ["array", "nest", "deep"],
                 adder("x.nest", ARRAY, Raw(deep)))
    suite.change("array_bad_element_type", "array element type 77", error, ["type", "77"],
                 adder("x.bad", ARRAY, Raw(u32(77) + u64(1) + b"\0" * 8)))
    suite.change("array_bool_3", "an array of bools with a 3", error, ["bool", "x.bools"],
                 adder("x.bools", ARRAY, (BOOL, [0, 1, 3])))
    suite.change("value_bad_type", "value type 13", error, ["type", "13"], adder("x.bad", 13, Raw(b"\0" * 8)))
    suite.change("bool_2", "a bool of value 2", error, ["bool", "add_bos"],
                 setter("tokenizer.ggml.add_bos_token", BOOL, 2))
    suite.change("duplicate_key", "general.name twice", error, ["duplicate", "general.name"],
                 adder("general.name", STRING, "tiny"))
    suite.change("duplicate_key_type", "llama.block_count twice with different types", error,
                 ["duplicate", "block_count"], adder("llama.block_count", U64, 1))
    suite.change("empty_key", "a key of length 0", "either", ["key", "empty"], adder("", U32, 1))
    suite.change("key_not_utf8", "a key of invalid UTF-8", "either", ["UTF-8", "key"], adder(b"\xff\xfe", U32, 1))
    unknown = [(U8, 1), (I8, -1), (U16, 2), (I16, -2), (U64, 5), (I64, -5), (F64, 0.5), (BOOL, 0), (STRING, ""),
               (ARRAY, (STRING, ["a", ""])), (ARRAY, (BOOL, [0, 1])), (ARRAY, (F64, []))]
    suite.change("unknown_keys", "keys nobody knows, of every type", "accept", [],
                 *[adder("zz.t%d.%d" % (kind, i), kind, value) for i, (kind, value) in enumerate(unknown)])


def add_tensor_cases(suite):
    error = "error"
    suite.change("offset_misaligned", "a tensor offset that is no multiple of the alignment", error,
                 ["align", "offset", "attn_q"], tensor_field(Q, "offset", 16903))
    suite.change("offset_past_end", "a tensor offset beyond the file", error, BEYOND,
                 tensor_field(Q, "offset", 1 << 40))
    suite.change("offset_wraps", "offset 2^64-32: data start + offset wraps", error, BEYOND,
                 tensor_field(Q, "offset", (1 << 64) - 32))
    suite.change("offset_overlap", "two tensors at the same place", error, ["overlap", "offset"],
                 tensor_field(K, "offset", 0))
    overflow = ["overflow", "dim", "size", "attn_q"]
    suite.change("dims_product_overflow", "dims 2^32 x 2^32", error, overflow,
                 tensor_field(Q, "dims", [1 << 32, 1 << 32]))
    suite.change("dims_product_wraps_to_ok", "dims whose product wraps to the right count", error, overflow,
                 tensor_field(Q, "dims", [1 << 33, (1 << 31) + 1]))
    suite.change("dim_negative", "a dimension of 2^64-32", error, ["dim", "size", "negative", "attn_q"],
                 tensor_field(Q, "dims", [32, (1 << 64) - 32]))
    suite.change("dims_5", "a tensor of 5 dimensions", error, ["dim"], tensor_field(Q, "dims", [32, 32, 1, 1, 1]))
    suite.change("dims_0", "a tensor of no dimensions", "either", ["dim"],
                 tensor_field("output_norm.weight", "n_dims", 0), tensor_field("output_norm.weight", "dims", []))
    suite.change("dims_count_huge", "dimension count 2^31", error, ["dim"], tensor_field(Q, "n_dims", 1 << 31))
    suite.change("dim_zero", "a dimension of 0", error, ["dim", "zero", "0", "attn_q"],
                 tensor_field(Q, "dims", [32, 0]))
    suite.change("dtype_unknown", "tensor type 200", error, ["type", "200"], tensor_field(Q, "dtype", 200))
    suite.change("dtype_removed", "tensor type 4 (once Q4_2)", error, ["type", "4"], tensor_field(Q, "dtype", 4))
    suite.change("row_not_multiple_of_block", "Q4_K rows of 32 values", error, ["block", "row", "multiple", "attn_q"],
                 tensor_field(Q, "dtype", DTYPE_Q4_K))
    suite.change("tensor_name_long", "a tensor name of 5000 bytes", error, ["name", "long", "length"],
                 tensor_field(Q, "name", "x" * 5000))
    suite.change("tensor_name_empty", "a tensor without a name", error, ["name", "empty"], tensor_field(Q, "name", ""))
    suite.change("tensor_name_nul", "a tensor name with a NUL in it", error, ["name", "NUL"],
                 tensor_field(Q, "name", "blk\0x"))
    suite.change("tensor_name_duplicate", "two tensors of one name", error, ["duplicate", "attn_k"],
                 tensor_field("blk.0.attn_v.weight", "name", K))
    for name, value, mentions in (("0", 0, ["align"]), ("not_power", 48, ["align"]),
                                  ("huge", 1 << 31, ["align", "offset", "end", "beyond"])):
        suite.change("alignment_" + name, "general.alignment %d" % value, error, mentions,
                     adder("general.alignment", U32, value))
    suite.change("alignment_string", "general.alignment is a string", error, ["align", "type"],
                 adder("general.alignment", STRING, "32"))
    suite.change("alignment_64", "general.alignment 64, laid out so", "accept", [],
                 adder("general.alignment", U32, 64), field("alignment", 64))


def add_tokenizer_cases(suite):
    error = "error"
    suite.change("no_tokenizer", "tokenizer.ggml.model is missing", error, ["tokenizer"],
                 remover("tokenizer.ggml.model"))
    suite.change("tokenizer_unknown", "tokenizer.ggml.model is nosuch", error, ["tokenizer", "nosuch"],
                 setter("tokenizer.ggml.model", STRING, "nosuch"))
    suite.change("no_tokens", "tokenizer.ggml.tokens is missing", error, ["tokens", "tokenizer"],
                 remover("tokenizer.ggml.tokens"))
    suite.change("tokens_wrong_type", "tokenizer.ggml.tokens is an array of u32", error, ["tokens", "type", "string"],
                 setter("tokenizer.ggml.tokens", ARRAY, (U32, list(range(N_VOCAB)))))
    suite.change("scores_short", "fewer scores than tokens", error, ["scores"],
                 setter("tokenizer.ggml.scores", ARRAY, (F32, [0.0] * 8)))
    suite.change("token_type_short", "fewer token types than tokens", error, ["token_type"],
                 setter("tokenizer.ggml.token_type", ARRAY, (I32, [1] * 8)))
    suite.change("bos_out_of_range", "bos_token_id 100000", error, ["bos", "token"],
                 setter("tokenizer.ggml.bos_token_id", U32, 100000))
    tokens, scores, types = make_vocabulary()
    suite.change("vocab_mismatch", "263 tokens but 264 embedding rows", error, ["vocab", "token", "shape"],
                 remover("llama.vocab_size"), setter("tokenizer.ggml.tokens", ARRAY, (STRING, tokens[:-1])),
                 setter("tokenizer.ggml.scores", ARRAY, (F32, scores[:-1])),
                 setter("tokenizer.ggml.token_type", ARRAY, (I32, types[:-1])))


def add_model_cases(suite):
    error = "error"
    heads, kv_heads = "llama.attention.head_count", "llama.attention.head_count_kv"
    suite.change("no_architecture", "general.architecture is missing", error, ["architecture"],
                 remover("general.architecture"))
    suite.change("architecture_unknown", "general.architecture is nosuch", error, ["nosuch"],
                 setter("general.architecture", STRING, "nosuch"))
    suite.change("architecture_int", "general.architecture is a u32", error, ["architecture", "type", "string"],
                 setter("general.architecture", U32, 7))
    suite.change("block_count_missing", "llama.block_count is missing", error, ["block_count"],
                 remover("llama.block_count"))
    suite.change("block_count_string", "llama.block_count is a string", error, ["block_count", "type"],
                 setter("llama.block_count", STRING, "1"))
    suite.change("block_count_huge", "llama.block_count 2^31", error, ["block_count", "missing", "tensor", "blk.1"],
                 setter("llama.block_count", U32, 1 << 31))
    suite.change("head_count_negative", "head_count -4 as i32", error, ["head_count"], setter(heads, I32, -4))
    suite.change("head_count_zero", "head_count 0", error, ["head_count"], setter(heads, U32, 0))
    suite.change("head_count_not_dividing", "head_count 5 for 32 channels", error, ["head_count", "divi", "rope"],
                 setter(heads, U32, 5))
    suite.change("head_count_kv_not_dividing", "head_count_kv 3 for 4 heads", error,
                 ["head_count_kv", "divi", "shape", "attn_k"], setter(kv_heads, U32, 3))
    suite.change("embedding_mismatch", "embedding_length 64 but tensors of 32", error,
                 ["shape", "dim", "token_embd", "embedding_length"], setter("llama.embedding_length", U32, 64))
    suite.change("missing_tensor", "blk.0.ffn_up.weight is missing", error, ["ffn_up", "missing"],
                 lambda model: model.tensors.remove(model.tensor("blk.0.ffn_up.weight")))
    suite.change("tensor_shape_wrong", "blk.0.attn_k.weight is 32x32 rather than 32x16", error,
                 ["attn_k", "shape", "dim"], tensor_field(K, "dims", [32, 32]),
                 tensor_field(K, "data", suite.valid.tensor(Q).data))
    suite.change("rms_epsilon_nan", "layer_norm_rms_epsilon is NaN", error, ["epsilon", "nan", "finite"],
                 setter("llama.attention.layer_norm_rms_epsilon", F32, Raw(u32(0x7fc00000))))
    suite.change("rope_dim_huge", "rope.dimension_count larger than a head", error, ["rope"],
                 setter("llama.rope.dimension_count", U32, 1 << 20))
    suite.change("context_zero", "context_length 0", error, ["context"], setter("llama.context_length", U32, 0))
    block = struct.pack("<e", float("nan")) + bytes(range(32))
    suite.change("nan_scale", "a Q8_0 tensor with a NaN scale", "either", ["nan", "attn_q", "finite"],
                 tensor_field(Q, "dtype", DTYPE_Q8_0), tensor_field(Q, "data", block * N_EMBD))
    suite.change("inf_norm", "a norm weight is infinite", "either", ["inf", "finite", "norm"],
                 tensor_field("output_norm.weight", "data", floats([float("inf")] + [1.0] * (N_EMBD - 1))))
    suite.change("keys_u64", "hyperparameters stored as u64 and i32", "either", ["type"],
                 setter("llama.block_count", U64, 1), setter(heads, I32, 4))
    suite.change("mmproj", "a projector of a vision model", error, ["mmproj", "clip", "projector"],
                 setter("general.architecture", STRING, "clip"), adder("general.type", STRING, "mmproj"),
                 adder("clip.has_vision_encoder", BOOL, 1))
    suite.change("adapter", "a LoRA adapter", error, ["adapter", "lora"], adder("general.type", STRING, "adapter"),
                 adder("adapter.type", STRING, "lora"),
                 lambda model: setattr(model, "tensors", [
                     Tensor(Q + ".lora_a", [N_EMBD, 4], DTYPE_F32, floats([0.0] * 4 * N_EMBD)),
                     Tensor(Q + ".lora_b", [4, N_EMBD], DTYPE_F32, floats([0.0] * 4 * N_EMBD))]))
    suite.change("vocabulary_only", "a vocabulary without a model", error, ["tensor", "missing"],
                 lambda model: setattr(model, "tensors", []))


def add_foreign_files(suite):
    """What people hand over that is no GGUF file."""

    def case(name, extension, what, mentions, data):
        suite.case(name, what, "error", mentions, data, extension)

    case("lfs_pointer", ".gguf", "a Git LFS pointer", ["LFS"],
         b"version https://git-lfs.github.com/spec/v1\noid sha256:%s\nsize 98000000\n" % (b"0" * 64))
    case("page", ".gguf", "an HTML page", ["HTML"],
         b"\n<!DOCTYPE html>\n<html><head><title>404</title></head><body>Not found</body></html>\n")
    header = b'{"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}'
    case("model", ".safetensors", "a safetensors file", ["safetensors"], u64(len(header)) + header + b"\0" * 8)
    case("zip", ".pt", "a ZIP archive, as PyTorch writes", ["PyTorch", "ZIP"], b"PK\x03\x04" + b"\0" * 60)
    case("pickle", ".bin", "a pickle, as PyTorch wrote once", ["PyTorch", "pickle"], b"\x80\x02\x8a\x0al\xfc" + b"\0" * 9)
    case("gzip", ".gguf.gz", "a gzip archive", ["gzip"], b"\x1f\x8b\x08\0" + b"\0" * 20)
    case("ggjt", ".bin", "a model in the ggjt format", ["ggjt", "ggml"], b"tjgg" + u32(3) + b"\0" * 64)
    case("text", ".gguf", "what a failed download says", ["text"], b"Entry not found")
    case("zeros", ".gguf", "an unfinished download", ["zeros", "magic"], b"\0" * 4096)
    case("noise", ".gguf", "random bytes", ["magic"], random.Random(7).randbytes(4096))


def make_part(valid, number, count, tensors):
    part = File()
    if number == 0:
        part.keys = copy.deepcopy(valid.keys)
    part.add("split.no", U16, number)
    part.add("split.count", U16, count)
    part.add("split.tensors.count", I32, len(valid.tensors))
    part.tensors = tensors
    return part


def add_split_files(suite):
    """Split models: the whole is in the manifest by one of its parts."""
    valid = suite.valid
    cuts = [0, 2, 7, len(valid.tensors)]
    parts = [make_part(valid, i, 3, valid.tensors[cuts[i]:cuts[i + 1]]) for i in range(3)]

    def name(prefix, i, count=3):
        return "%s-%05d-of-%05d" % (prefix, i + 1, count)

    for i, part in enumerate(parts):
        suite.case(name("split", i), "part %d of a model in three" % (i + 1), "accept", [], part)
    suite.write(name("lost", 0) + ".gguf", parts[0].bytes())
    suite.case(name("lost", 2), "part 2 is not there", "error", ["lost-00002-of-00003"], parts[2])
    foreign = {
        "count": ("part 2 says that it is one of 4", make_part(valid, 1, 4, parts[1].tensors)),
        "number": ("part 2 says that it is part 3", make_part(valid, 2, 3, parts[1].tensors)),
        "keys": ("part 2 is a whole model", valid),
        "duplicate": ("part 2 has a tensor of part 1", make_part(valid, 1, 3, parts[1].tensors + valid.tensors[:1])),
        "short": ("part 2 lacks a tensor", make_part(valid, 1, 3, parts[1].tensors[1:])),
    }
    second = make_part(valid, 1, 3, parts[1].tensors)
    second.add("general.architecture", STRING, "qwen2")
    foreign["architecture"] = ("part 2 is of another architecture", second)
    for kind, (what, second) in foreign.items():
        prefix = "foreign_" + kind
        suite.case(name(prefix, 0), what, "error", ["split", "belongs", "duplicate", "part"], parts[0])
        suite.write(name(prefix, 1) + ".gguf", second.bytes())
        suite.write(name(prefix, 2) + ".gguf", parts[2].bytes())
    suite.case("split_renamed", "a part whose name does not say so", "error", ["split", "part"], parts[0])
    suite.case(name("split_zero", -1), "part 0 of 3", "error", ["part 0"], parts[0])


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    suite = Suite(folder)
    for add in (add_header_cases, add_metadata_cases, add_tensor_cases, add_tokenizer_cases, add_model_cases,
                add_foreign_files, add_split_files):
        add(suite)
    lines = "".join(json.dumps(line) + "\n" for line in suite.lines)
    (folder / "manifest.jsonl").write_text(lines, encoding="utf-8")


if __name__ == "__main__":
    main()
