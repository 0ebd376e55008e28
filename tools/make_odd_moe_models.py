"""Makes the models of tests/data/odd that have experts: settings that the golden models of their families do not show.

Groups of experts, every gating, merged and scaled expert tensors, shared experts of other sizes, dense layers among the
others, rotations and windows layer by layer. As make_odd_models.py, whose oracle this one extends: written from the
papers and the families' definitions, in float64, apart from mote's source. The prompt is chosen so that no router is near
a tie, so that rounded sources choose the same experts.

  python3 tools/make_odd_moe_models.py tests/data/odd [NAME]...
"""
import math
import sys

import numpy as np

from make_odd_models import Model as DenseModel

N_TRIED = 12  # tokens tried at each position of the prompt

# Of an architecture: what its files do not say. rot: "pairs" of neighbours turn, or "halves".
FAMILIES = {
    "llama": dict(rot="pairs", normalize=True),
    "qwen2moe": dict(rot="halves"),
    "qwen3moe": dict(rot="halves", normalize=True, norms="head"),
    "olmoe": dict(rot="halves", norms="row"),
    "granite": dict(rot="pairs"),
    "granitemoe": dict(rot="pairs", gating="selected"),
    "mellum": dict(rot="halves", normalize=True, norms="head", window_unscaled=True),
    "gpt-oss": dict(rot="halves", gating="selected", sinks=True, clamped=True, ffn_norm="post_attention_norm"),
    "bailingmoe": dict(rot="pairs"),
    "glm4moe": dict(rot="halves", gating="sigmoid", ffn_norm="post_attention_norm", norms="head"),
}
GATINGS = {"softmax": 1, "sigmoid": 2, "selected": 3, "sqrtsoftplus": 4}

MODELS = {
    # One KV head, part of a head turns, YaRN with betas of its own, another base in windows, a dense layer, scales.
    "mellum-odd": dict(arch="mellum", n_layer=4, n_embd=40, n_head=6, n_kv=1, k_dim=10, v_dim=14, n_rot=6, n_ff=44,
                       n_vocab=67, dtypes="f16", base=20000.0, base_swa=300.0, yarn=(8.0, 16, 12.0, 2.0), context=512,
                       window=5, windows=[1, 0, 0, 1], n=72, tied=True, experts=5, used=2, n_ff_exp=24, dense=[1],
                       exps_scale=True),
    # As many KV heads as query heads, a period of three, expert scales beside the biases, block formats.
    "gpt-oss-odd": dict(arch="gpt-oss", n_layer=3, n_embd=64, n_head=3, n_kv=3, k_dim=12, v_dim=12, n_rot=12, n_ff=96,
                        n_vocab=53, dtypes="q8_0 f16 q5_1 mxfp4", base=9000.0, base_swa=700.0, yarn=(4.0, 32),
                        context=256, window=9, period=3, n=70, tied=True, biases=True, experts=6, used=4, n_ff_exp=96,
                        expert_biases=True, exps_scale=True, given="expert_feed_forward_length"),
    # Groups, a selection bias, two shared experts, no head norms, a layer that predicts further tokens.
    "glm4moe-groups": dict(arch="glm4moe", n_layer=3, n_embd=48, n_head=4, n_kv=2, k_dim=16, v_dim=16, n_rot=8, n_ff=60,
                           n_vocab=61, dtypes="f16 bf16", base=1e5, linear=2.0, context=256, n=70, tied=False,
                           norms=None, biases=True, experts=12, used=3, groups=(4, 2), n_ff_exp=20, shared_count=2,
                           selection_bias=True, weights_scale=2.5, normalize=True, leading=1, next=1),
    # A shared expert, no rotation at all, scales of everything, an output of its own.
    "granitemoe-shared": dict(arch="granitemoe", n_embd=56, n_head=7, n_kv=7, k_dim=8, v_dim=8, n_rot=8, n_ff=26,
                              n_vocab=45, dtypes="f16", base=1e4, context=256, n=66, tied=False, experts=7, used=3,
                              shared=40, no_rope=True, scales=(3.0, 0.3, 0.25, 0.7)),
    # Gate and up in one tensor, block formats, a shared expert with a gate and with segments of its own.
    "qwen2moe-merged": dict(arch="qwen2moe", n_embd=96, n_head=4, n_kv=2, k_dim=24, v_dim=24, n_rot=24, n_ff=128,
                            n_vocab=70, dtypes="q4_0 q4_1 q5_0 q8_0", base=1e5, context=256, n=66, tied=False,
                            biases=True, experts=9, used=2, n_ff_exp=64, shared=352, shared_gate=True, merged=True,
                            gating="sqrtsoftplus", normalize=True, weights_scale=0.8),
    # Experts in every second layer, biases, a window everywhere, K-quants, experts that are wider than dense layers.
    "llama-experts": dict(arch="llama", n_layer=4, n_embd=256, n_head=4, n_kv=2, k_dim=16, v_dim=20, n_rot=16, n_ff=48,
                          n_vocab=58, dtypes="q4_k q6_k q3_k q2_k q5_k", base=1e6, context=256, window=66, n=100,
                          tied=True, experts=4, used=1, n_ff_exp=256, step=2, expert_biases=True, selection_bias=True),
    # All experts used, softmax over the selected; norms over all heads of each kind, with bounds behind them.
    "olmoe-bounds": dict(arch="olmoe", n_embd=40, n_head=4, n_kv=2, k_dim=12, v_dim=12, n_rot=4, n_ff=18, n_vocab=39,
                         dtypes="f16 f32", base=1e4, context=256, n=66, tied=True, experts=3, used=3, clamp=0.9,
                         gating="selected"),
    # No experts: biases of the feed-forward block, and q, k and v in one tensor.
    "granite-biases": dict(arch="granite", n_embd=52, n_head=4, n_kv=1, k_dim=10, v_dim=18, n_rot=8, n_ff=31, n_vocab=35,
                           dtypes="f16", base=1e4, yarn=(2.0, 64), context=256, n=66, tied=True, mlp_biases=True,
                           fused=True, scales=(2.0, 0.5, 1.5, 0.2)),
    # docs/adding-an-architecture.md's example: two shared experts, the first layer dense, weights normalized by key.
    "bailingmoe-ling": dict(arch="bailingmoe", n_embd=44, n_head=6, n_kv=2, k_dim=14, v_dim=14, n_rot=14, n_ff=52,
                            n_vocab=41, dtypes="f16", base=6e5, context=256, n=66, tied=False, experts=10, used=4,
                            n_ff_exp=22, shared_count=2, leading=1, normalize=True, n_layer=3),
}


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


class Model(DenseModel):
    def __init__(self, name, c):
        c = dict(FAMILIES[c["arch"]], **c)
        c.setdefault("gating", "softmax")
        c.setdefault("n_ff_exp", c["n_ff"])
        super().__init__(name, c)
        self.gap = math.inf

    # ---- weights ----

    def has_experts(self, layer):
        c = self.c
        if "experts" not in c:
            return False
        if "step" in c:
            return (layer + 1) % c["step"] == 0
        return layer >= c.get("leading", 0) and layer not in c.get("dense", [])

    def stack(self, name, n_in, n_out, count):
        self.matrix(name, n_in, n_out * count)
        data, dtype = self.tensors[name]
        self.tensors[name] = (data.reshape(count, n_out, -1), dtype)
        self.values[name] = self.values[name].reshape(count, n_out, n_in)

    def table(self, name, n, count):
        self.vector(name, n * count, mean=0.0)
        data, dtype = self.tensors[name]
        self.tensors[name] = (data.reshape(count, n), dtype)
        self.values[name] = self.values[name].reshape(count, n)

    def make_experts(self, b):
        c = self.c
        n, k, ff = c["experts"], c["n_embd"], c["n_ff_exp"]
        self.matrix(b + "ffn_gate_inp.weight", k, n, dtype="f32", scale=3.0)
        if c.get("selection_bias"):
            self.vector(b + "exp_probs_b.bias", n, mean=0.1)
        if c.get("merged"):
            self.stack(b + "ffn_gate_up_exps.weight", k, 2 * ff, n)
        else:
            self.stack(b + "ffn_gate_exps.weight", k, ff, n)
            self.stack(b + "ffn_up_exps.weight", k, ff, n)
        self.stack(b + "ffn_down_exps.weight", ff, k, n)
        if c.get("expert_biases"):
            self.vector(b + "ffn_gate_inp.bias", n, mean=0.0)
            for part, width in [("gate", ff), ("up", ff), ("down", k)]:
                self.table(b + f"ffn_{part}_exps.bias", width, n)
        if c.get("exps_scale"):
            for part in ("gate", "up", "down"):
                self.vector(b + f"ffn_{part}_exps.scale", n)
        shared = c.get("shared", c.get("shared_count", 0) * ff)
        if shared:
            self.matrix(b + "ffn_gate_shexp.weight", k, shared)
            self.matrix(b + "ffn_up_shexp.weight", k, shared)
            self.matrix(b + "ffn_down_shexp.weight", shared, k)
        if c.get("shared_gate"):
            self.matrix(b + "ffn_gate_inp_shexp.weight", k, 1, dtype="f32")

    def make_layer(self, i):
        c, b = self.c, f"blk.{i}."
        self.vector(b + "attn_norm.weight", c["n_embd"])
        self.vector(b + c.get("ffn_norm", "ffn_norm") + ".weight", c["n_embd"])
        heads = {"attn_q": (c["n_head"], c["k_dim"]), "attn_k": (c["n_kv"], c["k_dim"]), "attn_v": (c["n_kv"], c["v_dim"])}
        for part, (count, width) in heads.items():
            self.matrix(b + part + ".weight", c["n_embd"], count * width)
            if "biases" in c:
                self.vector(b + part + ".bias", count * width, mean=0.0)
            if part != "attn_v" and c.get("norms"):
                self.vector(b + part + "_norm.weight", width if c["norms"] == "head" else count * width)
        self.matrix(b + "attn_output.weight", c["n_head"] * c["v_dim"], c["n_embd"])
        if c.get("sinks"):
            self.vector(b + "attn_output.bias", c["n_embd"], mean=0.0)
            self.vector(b + "attn_sinks.weight", c["n_head"], mean=0.5)
        if self.has_experts(i):
            self.make_experts(b)
        else:
            self.matrix(b + "ffn_gate.weight", c["n_embd"], c["n_ff"])
            self.matrix(b + "ffn_up.weight", c["n_embd"], c["n_ff"])
            self.matrix(b + "ffn_down.weight", c["n_ff"], c["n_embd"])
        if c.get("mlp_biases"):
            self.vector(b + "attn_output.bias", c["n_embd"], mean=0.0)
            for part, width in [("gate", c["n_ff"]), ("up", c["n_ff"]), ("down", c["n_embd"])]:
                self.vector(b + f"ffn_{part}.bias", width, mean=0.0)
        if c.get("fused"):
            parts = [self.tensors.pop(b + part + ".weight") for part in heads]
            self.tensors[b + "attn_qkv.weight"] = (np.concatenate([data for data, _ in parts]), parts[0][1])

    def make(self):
        c = self.c
        self.matrix("token_embd.weight", c["n_embd"], c["n_vocab"], scale=math.sqrt(c["n_embd"]) * 0.5)
        if not c["tied"]:
            self.matrix("output.weight", c["n_embd"], c["n_vocab"])
        self.vector("output_norm.weight", c["n_embd"])
        for i in range(c["n_layer"] + c.get("next", 0)):
            self.make_layer(i)

    # ---- the oracle ----

    def window_of(self, i):
        c = self.c
        if "window" not in c:
            return None
        windowed = c["windows"][i] if "windows" in c else (i + 1) % c["period"] != 0 if "period" in c else True
        return c["window"] if windowed else None

    def turn_heads(self, x, i):
        c, n_rot = self.c, self.c["n_rot"]
        if c.get("no_rope"):
            return x
        windowed = self.window_of(i) is not None
        base, plain = c["base"], windowed and c.get("window_unscaled")
        self.c = {k: v for k, v in c.items() if not (plain and k in ("yarn", "linear"))}
        self.c["base"] = c.get("base_swa", base) if windowed else base
        cos, sin = self.angles(True, len(x))
        self.c = c
        if c["rot"] == "pairs":
            first, second = np.arange(0, n_rot, 2), np.arange(1, n_rot, 2)
        else:
            first, second = np.arange(n_rot // 2), np.arange(n_rot // 2, n_rot)
        y = x.copy()
        cos, sin = cos[:, None, :], sin[:, None, :]
        y[:, :, first] = x[:, :, first] * cos - x[:, :, second] * sin
        y[:, :, second] = x[:, :, first] * sin + x[:, :, second] * cos
        return y

    def project(self, x, b, part, count, width):
        y = self.linear(x, b + part)
        norms = self.c.get("norms") if part != "attn_v" else None
        if norms == "row":
            y = self.norm(y, b + part + "_norm.weight")
        y = y.reshape(len(x), count, width)
        if norms == "head":
            y = self.norm(y, b + part + "_norm.weight")
        return np.clip(y, -self.c["clamp"], self.c["clamp"]) if "clamp" in self.c else y

    def attend(self, x, i):
        c, n, b = self.c, len(x), f"blk.{i}."
        q = self.turn_heads(self.project(x, b, "attn_q", c["n_head"], c["k_dim"]), i)
        k = self.turn_heads(self.project(x, b, "attn_k", c["n_kv"], c["k_dim"]), i)
        v = self.project(x, b, "attn_v", c["n_kv"], c["v_dim"])
        k, v = (np.repeat(t, c["n_head"] // c["n_kv"], axis=1) for t in (k, v))
        scale = c["scales"][3] if "scales" in c else 1 / math.sqrt(c["k_dim"])
        scores = np.einsum("ihd,jhd->hij", q, k) * scale
        distance = np.subtract.outer(np.arange(n), np.arange(n))
        seen = (distance >= 0) & (distance < (self.window_of(i) or n))
        scores = np.where(seen, scores, -np.inf)
        if c.get("sinks"):
            sinks = np.broadcast_to(self.values[b + "attn_sinks.weight"][:, None, None], (c["n_head"], n, 1))
            scores = np.concatenate([scores, sinks], axis=2)
        p = np.exp(scores - scores.max(axis=-1, keepdims=True))
        p = (p / p.sum(axis=-1, keepdims=True))[:, :, :n]
        return self.linear(np.einsum("hij,jhd->ihd", p, v).reshape(n, -1), b + "attn_output")

    def unit(self, gate, up):
        if self.c.get("clamped"):
            gate, up = np.minimum(gate, 7.0), np.clip(up, -7.0, 7.0)
            return gate * sigmoid(1.702 * gate) * (up + 1)
        return gate * sigmoid(gate) * up

    def note_gap(self, keys, n_taken):
        """How far the last that is taken is from the first that is not."""
        if n_taken < len(keys):
            ordered = np.sort(keys)[::-1]
            self.gap = min(self.gap, ordered[n_taken - 1] - ordered[n_taken])

    def route(self, logits, bias):
        """The chosen experts of one token, and their weights."""
        c = self.c
        if c["gating"] == "softmax":
            scores = np.exp(logits - logits.max())
            scores /= scores.sum()
        else:
            scores = {"sigmoid": sigmoid, "selected": lambda x: x,
                      "sqrtsoftplus": lambda x: np.sqrt(np.log1p(np.exp(x)))}[c["gating"]](logits)
        keys = scores + bias
        allowed = np.arange(c["experts"])
        if "groups" in c:
            n_group, n_used = c["groups"]
            members = keys.reshape(n_group, -1)
            best = np.sort(members, axis=1)[:, -2:].sum(axis=1)
            self.note_gap(best, n_used)
            groups = np.argsort(-best, kind="stable")[:n_used]
            allowed = np.concatenate([allowed.reshape(n_group, -1)[g] for g in sorted(groups)])
        self.note_gap(keys[allowed], c["used"])
        chosen = allowed[np.argsort(-keys[allowed], kind="stable")[:c["used"]]]
        weights = scores[chosen]
        if c["gating"] == "selected":
            weights = np.exp(weights - weights.max())
            weights /= weights.sum()
        if c.get("normalize"):
            weights = weights / weights.sum()
        return chosen, weights * c.get("weights_scale", 1.0)

    def expert(self, x, b, e):
        def product(part, x):
            if part != "down" and self.c.get("merged"):
                weight = self.values[b + "ffn_gate_up_exps.weight"][e]
                half = len(weight) // 2
                weight = weight[:half] if part == "gate" else weight[half:]
            else:
                weight = self.values[b + f"ffn_{part}_exps.weight"][e]
            y = weight @ x
            if self.c.get("exps_scale"):
                y = y * self.values[b + f"ffn_{part}_exps.scale"][e]
            return y + self.values[b + f"ffn_{part}_exps.bias"][e] if self.c.get("expert_biases") else y
        return product("down", self.unit(product("gate", x), product("up", x)))

    def experts(self, x, b):
        logits = self.linear(x, b + "ffn_gate_inp")
        bias = self.values.get(b + "exp_probs_b.bias", 0.0)
        y = np.zeros_like(x)
        for t in range(len(x)):
            for e, weight in zip(*self.route(logits[t], bias)):
                y[t] += weight * self.expert(x[t], b, e)
        if b + "ffn_up_shexp.weight" in self.values:
            hidden = self.unit(self.linear(x, b + "ffn_gate_shexp"), self.linear(x, b + "ffn_up_shexp"))
            shared = self.linear(hidden, b + "ffn_down_shexp")
            if self.c.get("shared_gate"):
                shared = shared * sigmoid(self.linear(x, b + "ffn_gate_inp_shexp"))
            y = y + shared
        return y

    def logits(self, tokens):
        c = self.c
        embedding_scale, residual, logit_scale, _ = c.get("scales", (1.0, 1.0, 1.0, None))
        x = self.values["token_embd.weight"][tokens] * embedding_scale
        for i in range(c["n_layer"]):
            b = f"blk.{i}."
            x = x + residual * self.attend(self.norm(x, b + "attn_norm.weight"), i)
            y = self.norm(x, b + c.get("ffn_norm", "ffn_norm") + ".weight")
            if self.has_experts(i):
                y = self.experts(y, b)
            else:
                gate = self.linear(y, b + "ffn_gate")
                y = self.linear(gate * sigmoid(gate) * self.linear(y, b + "ffn_up"), b + "ffn_down")
            x = x + residual * y
        head = "token_embd.weight" if c["tied"] else "output.weight"
        return self.norm(x, "output_norm.weight") @ self.values[head].T / logit_scale

    # ---- files ----

    def choose_tokens(self):
        """One after another, each the one of a few that leaves the routers farthest from a tie."""
        ids = []
        for _ in range(self.c["n"]):
            best = (-1.0, None)
            for token in self.rng.integers(0, self.c["n_vocab"], N_TRIED):
                self.gap = math.inf
                self.logits(np.array(ids + [token]))
                if self.gap > best[0]:
                    best = (self.gap, token)
            ids.append(best[1])
        self.gap = math.inf
        self.logits(np.array(ids))
        print(f"{self.name}: router gap {self.gap:.1e}")
        return np.array(ids, dtype=np.int32)

    def write_keys(self, writer):
        c = self.c
        arch = c["arch"]
        self.c = dict(c, n_layer=c["n_layer"] + c.get("next", 0))
        super().write_keys(writer)
        self.c = c
        if "experts" in c:
            writer.add_expert_count(c["experts"])
            writer.add_expert_used_count(c["used"])
        if c["n_ff_exp"] != c["n_ff"] or "given" in c:
            writer.add_expert_feed_forward_length(c["n_ff_exp"])
        if c["gating"] != FAMILIES[arch].get("gating", "softmax"):
            writer.add_uint32(f"{arch}.expert_gating_func", GATINGS[c["gating"]])
        if c.get("normalize", False) != FAMILIES[arch].get("normalize", False):
            writer.add_expert_weights_norm(c["normalize"])
        if "windows" in c:
            writer.add_sliding_window_pattern([bool(w) for w in c["windows"]])
        if c.get("no_rope"):
            writer.add_bool(f"{arch}.rope.scaling.finetuned", False)
        for name, value in zip(("embedding_scale", "residual_scale", "logit_scale", "attention.scale"),
                               c.get("scales", ())):
            writer.add_float32(f"{arch}.{name}", value)
        for key, name in [("base_swa", "rope.freq_base_swa"), ("clamp", "attention.clamp_kqv"),
                          ("weights_scale", "expert_weights_scale")]:
            if key in c:
                writer.add_float32(f"{arch}.{name}", c[key])
        for key, name in [("shared_count", "expert_shared_count"), ("shared", "expert_shared_feed_forward_length"),
                          ("leading", "leading_dense_block_count"), ("step", "interleave_moe_layer_step"),
                          ("next", "nextn_predict_layers")]:
            if key in c:
                writer.add_uint32(f"{arch}.{name}", c[key])
        if "groups" in c:
            writer.add_uint32(f"{arch}.expert_group_count", c["groups"][0])
            writer.add_uint32(f"{arch}.expert_group_used_count", c["groups"][1])


for model_name in sys.argv[2:] or MODELS:
    model = Model(model_name, MODELS[model_name])
    model.make()
    model.write(sys.argv[1])
