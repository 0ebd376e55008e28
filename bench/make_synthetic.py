#!/usr/bin/env python3
"""Writes a model of a real one's shape with random weights, for measuring speed: any size, no download.

The weights are random valid blocks, scaled so that every layer keeps its values near 1: logits are finite, and a router
spreads tokens over all experts. The vocabulary is a byte-level one with fillers. llama.cpp and its kin load the files
too. The same arguments give the same file. A few seconds a gigabyte, 50 MB of memory, Python's standard library only.
"""
import argparse
import array
import functools
import math
import pathlib
import random
import struct
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tools"))
from gguf_file import ARRAY, BOOL, DTYPES, F32, I32, STRING, U32, Failure, Writer  # noqa: E402

# A shape: what the GGUF keys say. n_ff: of the dense feed-forward; n_expert_ff: of an expert.
SHAPES = {
    "dense-0.8b": {"architecture": "llama", "n_layer": 12, "n_embd": 2048, "n_ff": 6144, "n_head": 32, "n_kv_head": 8,
                   "head_dim": 64, "n_vocab": 49152, "rope_base": 5e5},
    "moe-4b": {"architecture": "qwen3moe", "n_layer": 12, "n_embd": 2048, "n_ff": 6144, "n_head": 32, "n_kv_head": 4,
               "head_dim": 128, "n_vocab": 49152, "rope_base": 1e6, "n_expert": 64, "n_used": 8, "n_expert_ff": 768},
    # gpt-oss-20b has 24 layers; 6 make 6 billion weights.
    "gpt-oss": {"architecture": "gpt-oss", "n_layer": 6, "n_embd": 2880, "n_ff": 2880, "n_head": 64, "n_kv_head": 8,
                "head_dim": 64, "n_vocab": 49152, "rope_base": 1.5e5, "n_expert": 32, "n_used": 4, "n_expert_ff": 2880,
                "window": 128, "dtype": "Q8_0", "expert_dtype": "MXFP4"},
    # DeepSeek-V2-Lite has 27 layers, and experts of 1408. head_dim: of the queries, of which n_rot turn.
    "mla": {"architecture": "deepseek2", "n_layer": 6, "n_embd": 2048, "n_ff": 2816, "n_head": 16, "n_kv_head": 1,
            "head_dim": 192, "v_dim": 128, "n_rot": 64, "n_latent": 512, "n_vocab": 49152, "rope_base": 1e4,
            "n_expert": 64, "n_used": 6, "n_expert_ff": 1536, "n_shared": 2},
}
PIECE = 4 << 20  # bytes of random blocks, which a tensor repeats from a place of its own

# Block formats: the standard deviation of a weight where d is 1 and the codes are random; fields of F16 in a block, as
# (offset in bytes, factor of d): minimums are such that the mean is 0. Formats without one get d of either sign.
BLOCKS = {
    "Q8_0": (73.9, [(0, 1)]), "Q4_0": (4.61, [(0, 1)]), "Q5_0": (9.23, [(0, 1)]),
    "Q4_1": (4.61, [(0, 1), (2, -7.5)]), "Q5_1": (9.23, [(0, 1), (2, -15.5)]),
    "Q2_K": (13.9, [(80, 1), (82, 1.5)]), "Q3_K": (43.3, [(108, 1)]), "Q4_K": (258, [(0, 1), (2, 7.5)]),
    "Q5_K": (527, [(0, 1), (2, 15.5)]), "Q6_K": (1366, [(208, 1)]),
}
MXFP4_DEVIATION = 2.93


def random_bytes(generator, size):
    return bytearray(generator.getrandbits(8 * size).to_bytes(size, "little"))


def plain_piece(generator, dtype, deviation):
    count = PIECE // DTYPES[dtype][2]
    limit = deviation * math.sqrt(3)
    values = array.array("f", (generator.uniform(-limit, limit) for _ in range(count)))
    if dtype == "F32":
        return values.tobytes()
    if dtype == "F16":
        return struct.pack(f"<{count}e", *values)
    data, out = values.tobytes(), bytearray(2 * count)
    out[0::2], out[1::2] = data[2::4], data[3::4]
    return bytes(out)


@functools.lru_cache(maxsize=None)
def random_piece(dtype, deviation, seed):
    """PIECE bytes of whole blocks whose weights have this standard deviation."""
    generator = random.Random(repr((dtype, deviation, seed)))
    if DTYPES[dtype][1] == 1:
        return plain_piece(generator, dtype, deviation)
    size = DTYPES[dtype][2]
    count = PIECE // size
    data = random_bytes(generator, count * size)
    if dtype == "MXFP4":
        exponent = 127 + round(math.log2(deviation / MXFP4_DEVIATION))
        data[0::size] = bytes(exponent - generator.getrandbits(1) for _ in range(count))
        return bytes(data)
    unit, fields = BLOCKS[dtype]
    signs = (1, -1) if len(fields) == 1 else (1,)
    scales = [generator.uniform(0.5, 1.5) * generator.choice(signs) * deviation / unit for _ in range(count)]
    for offset, factor in fields:
        packed = struct.pack(f"<{count}e", *[scale * factor for scale in scales])
        data[offset::size], data[offset + 1::size] = packed[0::2], packed[1::2]
    return bytes(data)


class Model:
    """Announces the tensors of a shape to a writer."""

    def __init__(self, shape, options):
        self.shape, self.options, self.writer = shape, options, Writer()
        self.dtype = options.dtype or shape.get("dtype", "Q4_K")
        self.expert_dtype = options.expert_dtype or options.dtype or shape.get("expert_dtype", self.dtype)
        self.head_dtype = options.head_dtype or ("Q8_0" if self.dtype == "MXFP4" else self.dtype)
        self.n_weights = 0

    def add(self, name, dims, dtype, deviation=None, mean=0.0):
        """deviation None: 1/√k, which keeps a normed source's size."""
        count = math.prod(dims)
        self.n_weights += count
        if len(dims) == 1:
            self.writer.add_tensor(name, dims, "F32", lambda: [struct.pack(f"<{count}f", *[
                mean + random.Random(f"{name}{i}").uniform(-0.1, 0.1) for i in range(count)])])
            return
        piece_of = functools.partial(random_piece, dtype, deviation or 1 / math.sqrt(dims[0]), self.options.seed)
        size = count // DTYPES[dtype][1] * DTYPES[dtype][2]

        def pieces():
            piece, block = piece_of(), DTYPES[dtype][2]
            start = random.Random(f"{name}{self.options.seed}").randrange(len(piece) // block) * block
            piece = memoryview(piece[start:] + piece[:start])
            for begin in range(0, size, len(piece)):
                yield piece[:size - begin]

        self.writer.add_tensor(name, dims, dtype, pieces)

    def add_latent_attention(self, prefix):
        s = self.shape
        n_nope = s["head_dim"] - s["n_rot"]
        plain = "Q8_0" if self.dtype in BLOCKS else self.dtype  # n_nope fills no super-block
        self.add(f"{prefix}attn_kv_a_norm.weight", [s["n_latent"]], "F32", mean=1.0)
        for name, dims, dtype in (("attn_q", [s["n_embd"], s["n_head"] * s["head_dim"]], self.dtype),
                                  ("attn_kv_a_mqa", [s["n_embd"], s["n_latent"] + s["n_rot"]], self.dtype),
                                  ("attn_k_b", [n_nope, s["n_latent"], s["n_head"]], plain),
                                  ("attn_v_b", [s["n_latent"], s["v_dim"], s["n_head"]], self.dtype),
                                  ("attn_output", [s["n_head"] * s["v_dim"], s["n_embd"]], self.dtype)):
            self.add(f"{prefix}{name}.weight", dims, dtype)

    def add_attention(self, prefix, biases, head_norms):
        s = self.shape
        if "n_latent" in s:
            self.add_latent_attention(prefix)
            return
        width, kv_width = s["n_head"] * s["head_dim"], s["n_kv_head"] * s["head_dim"]
        for name, k, n in (("attn_q", s["n_embd"], width), ("attn_k", s["n_embd"], kv_width),
                           ("attn_v", s["n_embd"], kv_width), ("attn_output", width, s["n_embd"])):
            self.add(f"{prefix}{name}.weight", [k, n], self.dtype)
            if biases:
                self.add(f"{prefix}{name}.bias", [n], "F32")
        if head_norms:
            for name in ("attn_q_norm", "attn_k_norm"):
                self.add(f"{prefix}{name}.weight", [s["head_dim"]], "F32", mean=1.0)
        if "window" in s:
            self.add(f"{prefix}attn_sinks.weight", [s["n_head"]], "F32")

    def add_experts(self, prefix, biases):
        s = self.shape
        n, k, hidden = s["n_expert"], s["n_embd"], s["n_expert_ff"]
        self.add(f"{prefix}ffn_gate_inp.weight", [k, n], "F32", deviation=2 / math.sqrt(k))
        for name, dims in (("gate", [k, hidden, n]), ("up", [k, hidden, n]), ("down", [hidden, k, n])):
            self.add(f"{prefix}ffn_{name}_exps.weight", dims, self.expert_dtype)
        if "n_shared" in s:
            shared = s["n_shared"] * hidden
            for name, dims in (("gate", [k, shared]), ("up", [k, shared]), ("down", [shared, k])):
                self.add(f"{prefix}ffn_{name}_shexp.weight", dims, self.dtype)
        if biases:
            self.add(f"{prefix}ffn_gate_inp.bias", [n], "F32")
            for name, extent in (("gate", hidden), ("up", hidden), ("down", k)):
                self.add(f"{prefix}ffn_{name}_exps.bias", [extent, n], "F32", deviation=0.05)

    def add_tensors(self):
        s, architecture = self.shape, self.shape["architecture"]
        biases = architecture == "gpt-oss"
        self.add("token_embd.weight", [s["n_embd"], s["n_vocab"]], self.head_dtype, deviation=1.0)
        for layer in range(s["n_layer"]):
            prefix = f"blk.{layer}."
            self.add(f"{prefix}attn_norm.weight", [s["n_embd"]], "F32", mean=1.0)
            self.add_attention(prefix, biases, architecture == "qwen3moe")
            norm = "post_attention_norm" if biases else "ffn_norm"
            self.add(f"{prefix}{norm}.weight", [s["n_embd"]], "F32", mean=1.0)
            if "n_expert" in s:
                self.add_experts(prefix, biases)
                continue
            for name, k, n in (("gate", s["n_embd"], s["n_ff"]), ("up", s["n_embd"], s["n_ff"]),
                               ("down", s["n_ff"], s["n_embd"])):
                self.add(f"{prefix}ffn_{name}.weight", [k, n], self.dtype)
        self.add("output_norm.weight", [s["n_embd"]], "F32", mean=1.0)
        self.add("output.weight", [s["n_embd"], s["n_vocab"]], self.head_dtype)

    def add_keys(self, name):
        s, key = self.shape, self.writer.add_key
        a = s["architecture"]
        key("general.architecture", STRING, a)
        key("general.name", STRING, f"synthetic {name}")
        for word, kind, value in (
                ("block_count", U32, s["n_layer"]), ("context_length", U32, 32768),
                ("embedding_length", U32, s["n_embd"]), ("feed_forward_length", U32, s["n_ff"]),
                ("attention.head_count", U32, s["n_head"]), ("attention.head_count_kv", U32, s["n_kv_head"]),
                ("attention.key_length", U32, s["n_latent"] + s["n_rot"] if "n_latent" in s else s["head_dim"]),
                ("attention.value_length", U32, s.get("n_latent", s["head_dim"])),
                ("rope.freq_base", F32, s["rope_base"]), ("attention.layer_norm_rms_epsilon", F32, 1e-5),
                ("vocab_size", U32, s["n_vocab"])):
            key(f"{a}.{word}", kind, value)
        if a == "llama":
            key("llama.rope.dimension_count", U32, s["head_dim"])
        if "n_expert" in s:
            key(f"{a}.expert_count", U32, s["n_expert"])
            key(f"{a}.expert_used_count", U32, s["n_used"])
            key(f"{a}.expert_feed_forward_length", U32, s["n_expert_ff"])
        if "n_latent" in s:
            for word, value in (("attention.kv_lora_rank", s["n_latent"]), ("rope.dimension_count", s["n_rot"]),
                                ("attention.key_length_mla", s["head_dim"]), ("attention.value_length_mla", s["v_dim"]),
                                ("expert_shared_count", s["n_shared"]), ("leading_dense_block_count", 0)):
                key(f"{a}.{word}", U32, value)
        if "window" in s:
            key(f"{a}.attention.sliding_window", U32, s["window"])
            key(f"{a}.rope.scaling.type", STRING, "yarn")
            key(f"{a}.rope.scaling.factor", F32, 32.0)
            key(f"{a}.rope.scaling.original_context_length", U32, 4096)

    def add_vocabulary(self):
        """Every byte as byte-level BPE writes it, two merges, fillers."""
        printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
        others = [byte for byte in range(256) if byte not in printable]
        letters = {byte: chr(byte) for byte in printable} | {byte: chr(256 + i) for i, byte in enumerate(others)}
        tokens = [letters[byte] for byte in range(256)] + ["\u0120t", "he", "<|end|>"]
        end = len(tokens) - 1
        tokens += [f"<filler{i}>" for i in range(self.shape["n_vocab"] - len(tokens))]
        key = self.writer.add_key
        key("tokenizer.ggml.model", STRING, "gpt2")
        key("tokenizer.ggml.pre", STRING, "gpt-2")
        key("tokenizer.ggml.tokens", ARRAY, (STRING, tokens))
        key("tokenizer.ggml.token_type", ARRAY, (I32, [3 if i == end else 1 for i in range(len(tokens))]))
        key("tokenizer.ggml.merges", ARRAY, (STRING, ["\u0120 t", "h e"]))
        key("tokenizer.ggml.bos_token_id", U32, end)
        key("tokenizer.ggml.eos_token_id", U32, end)
        key("tokenizer.ggml.add_bos_token", BOOL, False)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    formats = [*BLOCKS, "MXFP4", "F16", "BF16", "F32"]
    parser.add_argument("shape", choices=SHAPES)
    parser.add_argument("output", type=pathlib.Path)
    parser.add_argument("--dtype", type=str.upper, choices=formats, metavar="DTYPE",
                        help="of all matrices (Q4_K; gpt-oss: Q8_0)")
    parser.add_argument("--expert-dtype", type=str.upper, choices=formats, metavar="DTYPE",
                        help="of experts (--dtype; gpt-oss: MXFP4)")
    parser.add_argument("--head-dtype", type=str.upper, choices=formats, metavar="DTYPE",
                        help="of the embedding and the output (--dtype)")
    for name in ("layer", "vocab", "expert", "used"):
        parser.add_argument(f"--n-{name}", type=int, metavar="N", help="instead of the shape's own")
    parser.add_argument("--seed", type=int, default=1)
    return parser, parser.parse_args()


def main():
    parser, options = arguments()
    shape = dict(SHAPES[options.shape])
    for name in ("n_layer", "n_vocab", "n_expert", "n_used"):
        value = getattr(options, name)
        if value is not None:
            if value < (512 if name == "n_vocab" else 1) or name not in shape:
                parser.error(f"--{name.replace('_', '-')} {value} does not fit {options.shape}")
            shape[name] = value
    if shape.get("n_used", 1) > shape.get("n_expert", 1):
        parser.error("more experts are used than there are")
    try:
        model = Model(shape, options)
        model.add_keys(options.shape)
        model.add_vocabulary()
        model.add_tensors()
        model.writer.write(options.output)
    except (Failure, OSError) as error:
        print(f"make_synthetic: {error}", file=sys.stderr)
        return 1
    print(f"{options.output}: {model.n_weights / 1e9:.2f} billion weights, {options.output.stat().st_size / 1e9:.2f} GB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
