"""Makes tests/data/odd: tiny random models of odd shapes, with logits computed in float64.

Widths that are no multiple of 16, one KV head or as many as query heads, rotations of a part of a head, values of
another length than keys, every dtype, every rope scaling. The forward pass below is written from the papers, apart from
mote's source. Needs numpy and gguf (PyPI); deterministic.

  python3 tools/make_odd_models.py tests/data/odd
"""
import math
import sys
import zlib

import gguf
import numpy as np
from gguf.quants import dequantize, quantize

T = gguf.GGMLQuantizationType
N_KEPT = 24  # the last positions, whose logits are stored

# K-quants, which gguf cannot make: bytes a block, and where its halves lie (d, dmin)
K_QUANTS = {T.Q2_K: (84, (80, 82)), T.Q3_K: (110, (108,)), T.Q4_K: (144, (0, 2)), T.Q5_K: (176, (0, 2)),
            T.Q6_K: (210, (208,))}
SHORT = {"f32": T.F32, "f16": T.F16, "bf16": T.BF16, "q8_0": T.Q8_0, "q4_0": T.Q4_0, "q4_1": T.Q4_1, "q5_0": T.Q5_0,
         "q5_1": T.Q5_1, "q2_k": T.Q2_K, "q3_k": T.Q3_K, "q4_k": T.Q4_K, "q5_k": T.Q5_K, "q6_k": T.Q6_K, "mxfp4": T.MXFP4}
# The matrices of a layer take these dtypes in turn.
PLAIN = "f16 f32 bf16 bf16 f16 f32 f16"
BLOCKS = "q4_0 q4_1 q5_0 q8_0 q5_1 q4_0 q8_0"
SUPERS = "q2_k q3_k q4_k q6_k q5_k q2_k q6_k q3_k q4_k q5_k q4_k q6_k"

MODELS = {
    # One query head a KV head, heads of 20 and values of 12, 14 dimensions turn, YaRN; nothing is a multiple of 16.
    "llama-yarn": dict(arch="llama", n_embd=48, n_head=3, n_kv=3, k_dim=20, v_dim=12, n_rot=14, n_ff=40, n_vocab=101,
                       dtypes=PLAIN, base=10000.0, yarn=(4.0, 16), context=64, n=60, tied=False),
    # The same betas from the file, and neighbours that turn in a head of its whole width.
    "qwen2-yarn": dict(arch="qwen2", n_embd=40, n_head=6, n_kv=1, k_dim=18, v_dim=18, n_rot=18, n_ff=56, n_vocab=37,
                       dtypes="f16 f16 f16 f32 f16 f16 f16", base=500.0, yarn=(8.0, 32, 16.0, 2.0), context=256, n=140,
                       biases=True, tied=True),
    "llama-linear": dict(arch="llama", n_embd=72, n_head=5, n_kv=5, k_dim=8, v_dim=24, n_rot=2, n_ff=33, n_vocab=50,
                         dtypes="f16 bf16 f32 f16 f16 f16 f32", base=1e6, linear=3.0, context=256, n=70, tied=True),
    "llama-factors": dict(arch="llama", n_embd=96, n_head=4, n_kv=2, k_dim=24, v_dim=24, n_rot=24, n_ff=96, n_vocab=65,
                          dtypes=BLOCKS, base=1e4, factors=True, context=256, n=70, tied=True),
    "qwen3-blocks": dict(arch="qwen3", n_embd=96, n_head=5, n_kv=1, k_dim=40, v_dim=32, n_rot=40, n_ff=160, n_vocab=77,
                         dtypes=BLOCKS, base=1e6, context=256, n=70, tied=False),
    # All of one format, the embedding that is also the head too.
    "qwen2-mxfp4": dict(arch="qwen2", n_embd=96, n_head=6, n_kv=2, k_dim=16, v_dim=32, n_rot=16, n_ff=224, n_vocab=59,
                        dtypes="mxfp4", base=1e5, context=256, n=90, biases=True, tied=True),
    "gemma3-supers": dict(arch="gemma3", n_embd=256, n_head=4, n_kv=2, k_dim=20, v_dim=64, n_rot=20, n_ff=256,
                          n_vocab=43, dtypes=SUPERS, base=1e6, linear=8.0, window=70, context=512, n=200,
                          period=2, tied=True),
}


def k_quant(rng, dtype, shape):
    """Random blocks whose values have a deviation of 1/sqrt(k)."""
    size, halves = K_QUANTS[dtype]
    blocks = rng.integers(0, 256, (shape[0], shape[1] // 256, size), dtype=np.uint8)
    one = np.frombuffer(np.float16(1).tobytes(), np.uint8)
    for at in halves:
        blocks[:, :, at:at + 2] = one
    spread = dequantize(blocks.reshape(shape[0], -1), dtype).std()
    d = np.float16(1 / math.sqrt(shape[1]) / spread)
    for at in halves:
        blocks[:, :, at:at + 2] = np.frombuffer(d.tobytes(), np.uint8)
    return blocks.reshape(shape[0], -1)


class Model:
    def __init__(self, name, c):
        self.name, self.c = name, dict({"n_layer": 2}, **c)
        self.rng = np.random.default_rng(zlib.crc32(name.encode()))
        self.tensors, self.values, self.turn = {}, {}, 0

    def matrix(self, name, n_in, n_out, dtype=None, scale=1.0):
        if dtype is None:
            dtypes = self.c["dtypes"].split()
            dtype = dtypes[self.turn % len(dtypes)]
            self.turn += 1
        dtype = SHORT[dtype]
        block = gguf.GGML_QUANT_SIZES[dtype][0]
        if n_in % block != 0:
            dtype = T.F16
        if dtype in K_QUANTS:
            data = k_quant(self.rng, dtype, (n_out, n_in))
        else:
            values = self.rng.standard_normal((n_out, n_in)).astype(np.float32) * np.float32(scale / math.sqrt(n_in))
            data = quantize(values, dtype)
        self.tensors[name] = (data, dtype)
        self.values[name] = dequantize(data, dtype).astype(np.float64)

    def vector(self, name, n, mean=1.0):
        values = (mean + 0.3 * self.rng.standard_normal(n)).astype(np.float32)
        self.tensors[name] = (values, T.F32)
        self.values[name] = values.astype(np.float64)

    def make(self):
        c = self.c
        self.matrix("token_embd.weight", c["n_embd"], c["n_vocab"], scale=math.sqrt(c["n_embd"]) * 0.5)
        if not c["tied"]:
            self.matrix("output.weight", c["n_embd"], c["n_vocab"])
        self.vector("output_norm.weight", c["n_embd"])
        if "factors" in c:
            self.tensors["rope_freqs.weight"] = (np.linspace(1, 8, c["n_rot"] // 2).astype(np.float32), T.F32)
        for i in range(c["n_layer"]):
            b = f"blk.{i}."
            for norm in ["attn_norm", "ffn_norm"] + (["post_attention_norm", "post_ffw_norm"]
                                                     if c["arch"] == "gemma3" else []):
                self.vector(b + norm + ".weight", c["n_embd"])
            for part, n in [("attn_q", c["n_head"] * c["k_dim"]), ("attn_k", c["n_kv"] * c["k_dim"]),
                            ("attn_v", c["n_kv"] * c["v_dim"])]:
                self.matrix(b + part + ".weight", c["n_embd"], n)
                if "biases" in c:
                    self.vector(b + part + ".bias", n, mean=0.0)
            if c["arch"] in ("qwen3", "gemma3"):
                self.vector(b + "attn_q_norm.weight", c["k_dim"])
                self.vector(b + "attn_k_norm.weight", c["k_dim"])
            self.matrix(b + "attn_output.weight", c["n_head"] * c["v_dim"], c["n_embd"])
            self.matrix(b + "ffn_gate.weight", c["n_embd"], c["n_ff"])
            self.matrix(b + "ffn_up.weight", c["n_embd"], c["n_ff"])
            self.matrix(b + "ffn_down.weight", c["n_ff"], c["n_embd"])

    # ---- the oracle ----

    def angles(self, is_global, n):
        c = self.c
        base = c["base"] if is_global else 10000.0
        pairs = np.arange(c["n_rot"] // 2)
        frequency = base ** (-2.0 * pairs / c["n_rot"])
        magnitude = 1.0
        if "factors" in c:
            frequency = frequency / self.tensors["rope_freqs.weight"][0].astype(np.float64)
        if "linear" in c and is_global:
            frequency = frequency / c["linear"]
        if "yarn" in c:  # Peng et al., 2023, sections 3.2 to 3.4
            factor, original, fast, slow = (c["yarn"] + (32.0, 1.0))[:4]

            def pair(turns):
                return c["n_rot"] * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(base))
            low, high = max(math.floor(pair(fast)), 0), min(math.ceil(pair(slow)), c["n_rot"] - 1)
            ramp = np.clip((pairs - low) / max(high - low, 0.001), 0, 1)
            frequency = frequency * (1 - ramp) + frequency / factor * ramp
            magnitude = 0.1 * math.log(factor) + 1
        angle = np.outer(np.arange(n), frequency)
        return np.cos(angle) * magnitude, np.sin(angle) * magnitude

    def rotate(self, x, cos, sin):  # x [n, heads, k_dim]
        n_rot = self.c["n_rot"]
        if self.c["arch"] == "llama":
            first, second = np.arange(0, n_rot, 2), np.arange(1, n_rot, 2)
        else:
            first, second = np.arange(n_rot // 2), np.arange(n_rot // 2, n_rot)
        y = x.copy()
        cos, sin = cos[:, None, :], sin[:, None, :]
        y[:, :, first] = x[:, :, first] * cos - x[:, :, second] * sin
        y[:, :, second] = x[:, :, first] * sin + x[:, :, second] * cos
        return y

    def norm(self, x, name):
        return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + 1e-6) * self.values[name]

    def linear(self, x, name):
        y = x @ self.values[name + ".weight"].T
        return y + self.values[name + ".bias"] if name + ".bias" in self.values else y

    def attention(self, x, b, is_global):
        c, n = self.c, len(x)
        q = self.linear(x, b + "attn_q").reshape(n, c["n_head"], c["k_dim"])
        k = self.linear(x, b + "attn_k").reshape(n, c["n_kv"], c["k_dim"])
        v = self.linear(x, b + "attn_v").reshape(n, c["n_kv"], c["v_dim"])
        if c["arch"] in ("qwen3", "gemma3"):
            q, k = self.norm(q, b + "attn_q_norm.weight"), self.norm(k, b + "attn_k_norm.weight")
        cos, sin = self.angles(is_global, n)
        q, k = self.rotate(q, cos, sin), self.rotate(k, cos, sin)
        k, v = (np.repeat(t, c["n_head"] // c["n_kv"], axis=1) for t in (k, v))
        scores = np.einsum("ihd,jhd->hij", q, k) / math.sqrt(c["k_dim"])
        i, j = np.mgrid[0:n, 0:n]
        seen = (j <= i) & (is_global | (i - j < c.get("window", n)))
        scores = np.where(seen, scores, -np.inf)
        p = np.exp(scores - scores.max(axis=-1, keepdims=True))
        p /= p.sum(axis=-1, keepdims=True)
        return self.linear(np.einsum("hij,jhd->ihd", p, v).reshape(n, -1), b + "attn_output")

    def mlp(self, x, b):
        gate, up = self.linear(x, b + "ffn_gate"), self.linear(x, b + "ffn_up")
        if self.c["arch"] == "gemma3":
            gate = 0.5 * gate * (1 + np.tanh(math.sqrt(2 / math.pi) * (gate + 0.044715 * gate ** 3)))
        else:
            gate = gate / (1 + np.exp(-gate))
        return self.linear(gate * up, b + "ffn_down")

    def logits(self, tokens):
        c, gemma = self.c, self.c["arch"] == "gemma3"
        x = self.values["token_embd.weight"][tokens] * (math.sqrt(c["n_embd"]) if gemma else 1)
        for i in range(c["n_layer"]):
            b = f"blk.{i}."
            y = self.attention(self.norm(x, b + "attn_norm.weight"), b, not gemma or (i + 1) % c["period"] == 0)
            x = x + (self.norm(y, b + "post_attention_norm.weight") if gemma else y)
            y = self.mlp(self.norm(x, b + "ffn_norm.weight"), b)
            x = x + (self.norm(y, b + "post_ffw_norm.weight") if gemma else y)
        head = "token_embd.weight" if c["tied"] else "output.weight"
        return self.norm(x, "output_norm.weight") @ self.values[head].T

    # ---- files ----

    def write_keys(self, writer):
        c = self.c
        writer.add_block_count(c["n_layer"])
        writer.add_embedding_length(c["n_embd"])
        writer.add_feed_forward_length(c["n_ff"])
        writer.add_context_length(c["context"])
        writer.add_head_count(c["n_head"])
        writer.add_head_count_kv(c["n_kv"])
        writer.add_key_length(c["k_dim"])
        writer.add_value_length(c["v_dim"])
        writer.add_rope_dimension_count(c["n_rot"])
        writer.add_layer_norm_rms_eps(1e-6)
        writer.add_rope_freq_base(c["base"])
        if "linear" in c:
            writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
            writer.add_rope_scaling_factor(c["linear"])
        if "yarn" in c:
            writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
            writer.add_rope_scaling_factor(c["yarn"][0])
            writer.add_rope_scaling_orig_ctx_len(c["yarn"][1])
            for key, value in zip(("beta_fast", "beta_slow"), c["yarn"][2:]):
                writer.add_float32(f"{c['arch']}.rope.scaling.yarn_{key}", value)
        if "window" in c:
            writer.add_sliding_window(c["window"])
            if "period" in c:
                writer.add_uint32(f"{c['arch']}.attention.sliding_window_pattern", c["period"])

    def write_tokenizer(self, writer):
        writer.add_tokenizer_model("gpt2")
        writer.add_tokenizer_pre("gpt-2")
        letters = [chr(0x100 + i) for i in range(self.c["n_vocab"] - 3)]
        writer.add_token_list(["<|bos|>", "<|eos|>"] + letters + [letters[0] + letters[1]])
        writer.add_token_types([3, 3] + [1] * (self.c["n_vocab"] - 2))
        writer.add_token_merges([letters[0] + " " + letters[1]])
        writer.add_bos_token_id(0)
        writer.add_eos_token_id(1)

    def choose_tokens(self):
        return self.rng.integers(0, self.c["n_vocab"], self.c["n"], dtype=np.int32)

    def write(self, folder):
        writer = gguf.GGUFWriter(f"{folder}/{self.name}.gguf", self.c["arch"])
        self.write_keys(writer)
        self.write_tokenizer(writer)
        for name, (data, dtype) in self.tensors.items():
            writer.add_tensor(name, data, raw_dtype=dtype)
        finish(writer)

        ids = self.choose_tokens()
        writer = gguf.GGUFWriter(f"{folder}/{self.name}.golden.gguf", "golden")
        writer.add_tensor("tokens", ids)
        writer.add_tensor("logits", self.logits(ids)[-N_KEPT:].astype(np.float32))
        finish(writer)


def finish(writer):
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    for model_name, config in MODELS.items():
        model = Model(model_name, config)
        model.make()
        model.write(sys.argv[1])
