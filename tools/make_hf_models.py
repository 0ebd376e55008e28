"""Makes models of tests/data/models whose oracle is Hugging Face transformers: settings that other engines ignore.

Rotations of another base in layers with a window, YaRN's betas other than 32 and 1, the temperature of several positions,
groups of experts chosen by their best one, odd sizes, biases of latent attention, files before the split of attn_kv_b,
matrices a head in block formats. The
transformers model is evaluated wholly in float64: its own casts to float32 are lifted. Weights are multiples of 2^-9 within
±0.5, so that F16 holds them exactly; tokens are chosen so that no router is near a tie. Needs torch, transformers (5.24),
numpy and gguf (PyPI); deterministic. Tests never run this.

  python3 tools/make_hf_models.py tests/data/models [NAME...]
"""
import json
import math
import sys
import zlib

import gguf
import numpy as np
import torch
import transformers
from gguf.quants import dequantize, quantize
from transformers import modeling_rope_utils
from transformers.masking_utils import create_causal_mask  # noqa: F401 (the models import it: checked here)

N_VOCAB, N_TOKENS, MIN_GAP = 272, 60, 8e-3
LONG = {"mistral4-far": 140, "gpt-oss-long": 140} # tokens: more than two pages of the cache
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}

# name: (class, GGUF architecture, config)
MODELS = {
    "mellum-bases": ("Mellum", "mellum", dict(
        hidden_size=48, intermediate_size=64, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2,
        head_dim=20, moe_intermediate_size=24, num_experts=6, num_experts_per_tok=2, sliding_window=9,
        layer_types=["full_attention", "sliding_attention", "sliding_attention", "full_attention"],
        rope_parameters={"full_attention": dict(YARN, rope_theta=20000.0, beta_fast=2.0, beta_slow=0.5,
                                                original_max_position_embeddings=64),
                         "sliding_attention": {"rope_type": "default", "rope_theta": 30.0}})),
    "mistral3-far": ("Ministral3", "mistral3", dict(
        hidden_size=48, intermediate_size=64, num_hidden_layers=2, num_attention_heads=3, num_key_value_heads=1,
        head_dim=24, rope_parameters=dict(YARN, rope_theta=40.0, beta_fast=0.8, beta_slow=0.2, mscale=1.0,
                                          mscale_all_dim=1.0, original_max_position_embeddings=8,
                                          llama_4_scaling_beta=0.5))),
    "mistral4-far": ("Mistral4", "mistral4", dict(
        hidden_size=48, intermediate_size=40, moe_intermediate_size=24, num_hidden_layers=3, num_attention_heads=3,
        n_shared_experts=2, n_routed_experts=6, routed_scaling_factor=1.25, kv_lora_rank=40, q_lora_rank=20,
        qk_rope_head_dim=8, qk_nope_head_dim=12, v_head_dim=20, num_experts_per_tok=2, first_k_dense_replace=1,
        rms_norm_eps=1e-5, attention_bias=True,
        rope_parameters=dict(YARN, rope_theta=50.0, beta_fast=0.4, beta_slow=0.1, mscale=0.8, mscale_all_dim=0.8,
                             original_max_position_embeddings=8, llama_4_scaling_beta=0.5))),
    "gpt-oss-long": ("GptOss", "gpt-oss", dict(
        hidden_size=48, intermediate_size=24, num_hidden_layers=3, num_attention_heads=6, num_key_value_heads=3,
        head_dim=12, num_local_experts=6, num_experts_per_tok=2, sliding_window=70,
        rope_parameters={"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 32, "rope_theta": 1000.0,
                         "beta_fast": 1.5, "beta_slow": 0.2, "truncate": True})),
    "deepseek2-groups": ("DeepseekV2", "deepseek2", dict(
        hidden_size=48, intermediate_size=64, moe_intermediate_size=24, num_hidden_layers=3, num_attention_heads=6,
        n_shared_experts=1, n_routed_experts=12, routed_scaling_factor=3.0, n_group=4, topk_group=2,
        topk_method="group_limited_greedy", kv_lora_rank=32, q_lora_rank=24, qk_rope_head_dim=12, qk_nope_head_dim=16,
        v_head_dim=24, num_experts_per_tok=3, first_k_dense_replace=1,
        rope_parameters=dict(YARN, rope_theta=300.0, beta_fast=0.8, beta_slow=0.2, mscale=0.707,
                             mscale_all_dim=0.707))),
    "deepseek2-old": ("DeepseekV3", "deepseek2", dict(
        hidden_size=64, intermediate_size=64, moe_intermediate_size=24, num_hidden_layers=2, num_attention_heads=3,
        n_routed_experts=4, n_group=1, topk_group=1, kv_lora_rank=64, q_lora_rank=None, qk_rope_head_dim=32,
        qk_nope_head_dim=20, v_head_dim=16, num_experts_per_tok=2, first_k_dense_replace=2,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0})),
    "deepseek2-blocks": ("DeepseekV3", "deepseek2", dict(
        hidden_size=64, intermediate_size=96, moe_intermediate_size=32, num_hidden_layers=3, num_attention_heads=4,
        n_routed_experts=6, n_shared_experts=1, n_group=3, topk_group=2, routed_scaling_factor=1.5, kv_lora_rank=64,
        q_lora_rank=32, qk_rope_head_dim=32, qk_nope_head_dim=32, v_head_dim=24, num_experts_per_tok=2,
        first_k_dense_replace=1, rope_parameters={"rope_type": "linear", "factor": 2.5, "rope_theta": 500.0})),
}

T = gguf.GGMLQuantizationType
# Of these models' matrices; others are F16.
DTYPES = {
    "deepseek2-old": {"attn_kv_b": T.Q4_0, "attn_q": T.Q8_0, "attn_kv_a_mqa": T.Q5_0, "ffn_gate": T.Q8_0, "ffn_up": T.Q4_0,
                      "ffn_down": T.Q5_0},
    "deepseek2-blocks": {"attn_k_b": T.Q8_0, "attn_v_b": T.Q5_0, "attn_q_a": T.Q8_0, "attn_q_b": T.Q8_0,
                         "attn_kv_a_mqa": T.Q4_0, "attn_output": T.Q5_0, "ffn_gate_up_exps": T.Q8_0,
                         "ffn_down_exps": T.Q4_0, "ffn_gate_shexp": T.Q8_0, "ffn_up_shexp": T.Q8_0,
                         "ffn_down_shexp": T.Q8_0},
}


def rounded(values, dtype):
    """What a block format makes of values."""
    values = values.astype(np.float32)
    return dequantize(quantize(values, dtype), dtype).reshape(values.shape)


class Torch64:
    """torch with F64 for F32."""

    def __getattr__(self, name):
        return torch.float64 if name in ("float32", "float") else getattr(torch, name)


def lift(module):
    module.torch = Torch64()


def split_kv_b(cfg, values):
    """K of each head, turned, and V."""
    heads = values.reshape(cfg.num_attention_heads, -1, cfg.kv_lora_rank)
    return heads[:, :cfg.qk_nope_head_dim].swapaxes(1, 2), heads[:, cfg.qk_nope_head_dim:]


def round_matrix(cfg, name, values, dtypes):
    target = NAMES.get(name.split(".", 3)[-1].removesuffix(".weight"))
    if target == "attn_kv_b" and "attn_k_b" in dtypes:
        k, v = split_kv_b(cfg, values)
        k, v = rounded(k, dtypes["attn_k_b"]), rounded(v, dtypes["attn_v_b"])
        return np.concatenate([k.swapaxes(1, 2), v], axis=1).reshape(values.shape)
    return rounded(values, dtypes[target]) if target in dtypes else values


def make_model(kind, config, seed, dtypes):
    transformers.set_seed(0)
    torch.set_default_dtype(torch.float64)
    torch.Tensor.float = torch.Tensor.double
    lift(modeling_rope_utils)
    cls = getattr(transformers, kind + "ForCausalLM")
    if "kv_lora_rank" in config: # every head has a key of its own
        config = dict(config, num_key_value_heads=config["num_attention_heads"])
    lift(sys.modules[cls.__module__])
    cfg = getattr(transformers, kind + "Config")(
        vocab_size=N_VOCAB, max_position_embeddings=256, attn_implementation="eager", use_cache=False, pad_token_id=None,
        bos_token_id=None, eos_token_id=None, **config)
    cfg._experts_implementation = "eager"
    model = cls._from_config(cfg, dtype=torch.float64).eval()
    rng = np.random.default_rng(seed)
    with torch.no_grad():
        for name, p in list(model.named_parameters()) + list(model.named_buffers()):
            if "inv_freq" in name:
                continue
            values = rng.standard_normal(p.shape)
            if name.endswith("e_score_correction_bias"):
                values *= 0.1
            elif p.dim() == 1 and name.endswith("norm.weight"):
                values = 1 + 0.25 * values
            elif name.endswith("bias") or p.dim() == 1:
                values *= 1.0 if name.endswith("sinks") else 0.25
            elif name.endswith(("gate.weight", "router.weight")):
                values *= 2.5 / math.sqrt(p.shape[-1])
            elif "embed_tokens" not in name:
                fan_in = p.shape[-2 if kind == "GptOss" and "experts" in name else -1]
                values *= (4 if "lm_head" in name else 1.3) / math.sqrt(fan_in)
            if p.dim() > 1:
                values = round_matrix(cfg, name, np.clip(np.round(values * 512), -256, 256) / 512, dtypes)
            p.copy_(torch.from_numpy(values.astype(np.float32).astype(np.float64)))
    return model, cfg, rng


def gap(scores, k):
    top = torch.sort(scores, descending=True).values
    return float(top[k - 1] - top[k])


def router_gap(model, cfg, logits, bias):
    """The least distance between what is chosen and what is not, of groups and of experts."""
    scores = logits.sigmoid() + bias if bias is not None else logits.softmax(-1)
    k, least = cfg.num_experts_per_tok, 1.0
    n_group = getattr(cfg, "n_group", None) or 1
    if n_group > 1:
        grouped = scores.view(n_group, -1)
        best = grouped.max(-1).values if bias is None else grouped.topk(2, -1)[0].sum(-1)
        least = gap(best, cfg.topk_group)
        kept = torch.zeros(n_group, dtype=torch.bool)
        kept[best.topk(cfg.topk_group).indices] = True
        scores = scores.masked_fill(~kept.repeat_interleave(grouped.shape[1]), -1.0)
    return min(least, gap(scores, k))


def run(model, cfg, tokens):
    """Logits [n, vocab] and the gap at the last token."""
    gaps, hooks = [1.0], []
    for name, module in model.named_modules():
        if type(module).__name__.lower().endswith("topkrouter"):
            bias = getattr(module, "e_score_correction_bias", None)
            hooks.append(module.register_forward_hook(
                lambda m, i, out, bias=bias: gaps.append(router_gap(model, cfg, out[0].view(-1, out[0].shape[-1])[-1], bias))))
    with torch.no_grad():
        logits = model(torch.tensor([tokens])).logits[0]
    for hook in hooks:
        hook.remove()
    assert logits.dtype == torch.float64
    return logits, min(gaps)


def choose_tokens(model, cfg, rng, n=N_TOKENS):
    tokens = []
    while len(tokens) < n:
        for _ in range(60):
            token = int(rng.integers(0, 256))
            logits, least = run(model, cfg, tokens + [token])
            if least >= MIN_GAP:
                break
        else:
            raise SystemExit("no token keeps the routers from ties")
        tokens.append(token)
    return tokens, logits


def permute(w, n_head):
    """Rows of q or k so that neighbours turn together instead of halves."""
    return w.reshape(n_head, 2, w.shape[0] // n_head // 2, *w.shape[1:]).swapaxes(1, 2).reshape(w.shape)


class Writer:
    def __init__(self, path, arch, dtypes):
        self.w = gguf.GGUFWriter(path, arch)
        self.arch, self.dtypes = arch, dtypes

    def key(self, name, value):
        name = self.arch + "." + name
        if isinstance(value, bool):
            self.w.add_bool(name, value)
        elif isinstance(value, int):
            self.w.add_uint32(name, value)
        elif isinstance(value, float):
            self.w.add_float32(name, value)
        elif isinstance(value, list):
            self.w.add_array(name, value)
        else:
            self.w.add_string(name, value)

    def tensor(self, name, values):
        dtype = self.dtypes.get(name.split(".")[-2])
        if dtype is not None:
            assert np.array_equal(rounded(values, dtype), values), name
            self.w.add_tensor(name, quantize(values.astype(np.float32), dtype), raw_dtype=dtype)
            return
        f32 = values.ndim == 1 or name.endswith(".bias") or name.endswith("ffn_gate_inp.weight")
        out = values.astype(np.float32 if f32 else np.float16)
        assert np.array_equal(out.astype(np.float64), values), name
        self.w.add_tensor(name, out)

    def close(self):
        self.w.write_header_to_file()
        self.w.write_kv_data_to_file()
        self.w.write_tensors_to_file()
        self.w.close()


MERGES = ["Ġ t", "h e", "i n", "r e", "o n", "Ġt he"]


def byte_tokens():
    """The byte-level vocabulary of GPT-2, what the merges make, three special tokens, padding; and their types."""
    shown = list(range(33, 127)) + list(range(161, 173)) + list(range(174, 256))
    hidden = [b for b in range(256) if b not in shown]
    names = {b: chr(b) for b in shown} | {b: chr(256 + i) for i, b in enumerate(hidden)}
    merged = [m.replace(" ", "") for m in MERGES]
    rest = N_VOCAB - 256 - len(merged) - 3
    return ([names[b] for b in range(256)] + merged + ["<|bos|>", "<|eos|>", "<|pad|>"]
            + [f"[PAD{i}]" for i in range(rest)], [1] * (256 + len(merged)) + [3] * 3 + [5] * rest)


def write_keys(out, name, cfg):
    out.w.add_name("tiny " + name)
    out.key("block_count", cfg.num_hidden_layers)
    out.key("context_length", 256)
    out.key("embedding_length", cfg.hidden_size)
    out.key("feed_forward_length", cfg.intermediate_size)
    out.key("attention.head_count", cfg.num_attention_heads)
    out.key("attention.layer_norm_rms_epsilon", float(cfg.rms_norm_eps))
    rope = cfg.rope_parameters
    if "full_attention" in rope:
        out.key("rope.freq_base_swa", rope["sliding_attention"]["rope_theta"])
        rope = rope["full_attention"]
    out.key("rope.freq_base", rope["rope_theta"])
    if rope["rope_type"] == "linear":
        out.key("rope.scaling.type", "linear")
        out.key("rope.scaling.factor", rope["factor"])
    if rope["rope_type"] == "yarn":
        out.key("rope.scaling.type", "yarn")
        out.key("rope.scaling.factor", rope["factor"])
        out.key("rope.scaling.original_context_length", rope["original_max_position_embeddings"])
        out.key("rope.scaling.yarn_beta_fast", rope["beta_fast"])
        out.key("rope.scaling.yarn_beta_slow", rope["beta_slow"])
    if "mscale_all_dim" in rope: # latent attention: a tenth of it, as converters write
        latent = hasattr(cfg, "kv_lora_rank")
        out.key("rope.scaling.yarn_log_multiplier", rope["mscale_all_dim"] * (0.1 if latent else 1.0))
    if "llama_4_scaling_beta" in rope:
        out.key("attention.temperature_scale", rope["llama_4_scaling_beta"])
        if out.arch == "mistral4":
            out.key("attention.temperature_length", rope["original_max_position_embeddings"])


def write_attention_keys(out, cfg, old):
    if not hasattr(cfg, "kv_lora_rank"):
        out.key("attention.head_count_kv", cfg.num_key_value_heads)
        out.key("attention.key_length", cfg.head_dim)
        out.key("attention.value_length", cfg.head_dim)
        out.key("rope.dimension_count", cfg.head_dim)
        return
    key_length = cfg.qk_nope_head_dim + cfg.qk_rope_head_dim
    out.key("attention.head_count_kv", cfg.num_attention_heads if old else 1)
    out.key("attention.key_length", key_length if old else cfg.kv_lora_rank + cfg.qk_rope_head_dim)
    out.key("attention.value_length", cfg.v_head_dim if old else cfg.kv_lora_rank)
    if not old:
        out.key("attention.key_length_mla", key_length)
        out.key("attention.value_length_mla", cfg.v_head_dim)
    out.key("attention.kv_lora_rank", cfg.kv_lora_rank)
    if cfg.q_lora_rank:
        out.key("attention.q_lora_rank", cfg.q_lora_rank)
    out.key("rope.dimension_count", cfg.qk_rope_head_dim)


def write_expert_keys(out, cfg):
    if cfg.model_type == "gpt_oss": # which layers have a window follows from the architecture
        out.key("attention.sliding_window", cfg.sliding_window)
        out.key("expert_count", cfg.num_local_experts)
        out.key("expert_used_count", cfg.num_experts_per_tok)
        out.key("expert_feed_forward_length", cfg.intermediate_size)
    if not hasattr(cfg, "moe_intermediate_size"):
        return
    out.key("expert_count", getattr(cfg, "n_routed_experts", None) or cfg.num_experts)
    out.key("expert_used_count", cfg.num_experts_per_tok)
    out.key("expert_feed_forward_length", cfg.moe_intermediate_size)
    if hasattr(cfg, "first_k_dense_replace"):
        out.key("leading_dense_block_count", cfg.first_k_dense_replace)
        out.key("expert_shared_count", cfg.n_shared_experts)
        out.key("expert_weights_scale", float(cfg.routed_scaling_factor))
        out.key("expert_weights_norm", bool(cfg.norm_topk_prob))
        out.key("expert_group_count", cfg.n_group or 1)
        out.key("expert_group_used_count", cfg.topk_group or 1)
        out.key("expert_gating_func", 2 if cfg.model_type == "deepseek_v3" else 1)
    if getattr(cfg, "sliding_window", None):
        out.key("attention.sliding_window", cfg.sliding_window)
        out.key("attention.sliding_window_pattern", [t == "sliding_attention" for t in cfg.layer_types])


NAMES = {
    "model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight", "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm",
    "self_attn.q_a_proj": "attn_q_a", "self_attn.q_a_layernorm": "attn_q_a_norm", "self_attn.q_b_proj": "attn_q_b",
    "self_attn.kv_a_proj_with_mqa": "attn_kv_a_mqa", "self_attn.kv_a_layernorm": "attn_kv_a_norm",
    "self_attn.kv_b_proj": "attn_kv_b", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down", "mlp.gate": "ffn_gate_inp", "mlp.experts.gate_up_proj": "ffn_gate_up_exps",
    "mlp.experts.down_proj": "ffn_down_exps", "mlp.shared_experts.gate_proj": "ffn_gate_shexp",
    "mlp.shared_experts.up_proj": "ffn_up_shexp", "mlp.shared_experts.down_proj": "ffn_down_shexp",
    "mlp.router": "ffn_gate_inp",
}


def write_gpt_oss_part(out, prefix, part, values):
    """What this family has of its own; False: it is as in others."""
    if part == "post_attention_layernorm.weight":
        out.tensor(prefix + "post_attention_norm.weight", values)
    elif part == "self_attn.sinks":
        out.tensor(prefix + "attn_sinks.weight", values)
    elif part in ("mlp.experts.gate_up_proj", "mlp.experts.gate_up_proj_bias"): # gate and up take turns
        end = "bias" if part.endswith("bias") else "weight"
        for i, target in enumerate(("gate", "up")):
            half = values[..., i::2]
            half = half.swapaxes(1, 2) if end == "weight" else half
            out.tensor(f"{prefix}ffn_{target}_exps.{end}", half.copy())
    elif part == "mlp.experts.down_proj":
        out.tensor(prefix + "ffn_down_exps.weight", values.swapaxes(1, 2).copy())
    elif part == "mlp.experts.down_proj_bias":
        out.tensor(prefix + "ffn_down_exps.bias", values)
    else:
        return False
    return True


def write_tensors(out, model, cfg, old):
    for name, values in model.state_dict().items():
        values = values.numpy()
        if name in NAMES:
            out.tensor(NAMES[name], values)
            continue
        _, _, layer, part = name.split(".", 3)
        if out.arch == "gpt-oss" and write_gpt_oss_part(out, f"blk.{layer}.", part, values):
            continue
        stem, _, end = part.rpartition(".")
        if part.startswith("mlp.experts."):
            stem, end = part, "weight"
        if part == "mlp.gate.e_score_correction_bias":
            out.tensor(f"blk.{layer}.exp_probs_b.bias", values)
            continue
        target = NAMES[stem]
        if out.arch == "mistral3" and target in ("attn_q", "attn_k"):
            values = permute(values, cfg.num_attention_heads if target == "attn_q" else cfg.num_key_value_heads)
        if target == "attn_kv_b" and not old:
            k, v = split_kv_b(cfg, values)
            out.tensor(f"blk.{layer}.attn_k_b.weight", k.copy())
            out.tensor(f"blk.{layer}.attn_v_b.weight", v.copy())
            continue
        out.tensor(f"blk.{layer}.{target}.{end}", values)


def write_golden(folder, name, model, config, tokens, logits):
    golden = gguf.GGUFWriter(f"{folder}/{name}.golden.gguf", "golden")
    golden.add_string("golden.model", f"{name}.gguf")
    golden.add_string("golden.class", type(model).__name__)
    golden.add_string("golden.config", json.dumps(config, sort_keys=True))
    golden.add_string("golden.transformers_version", transformers.__version__)
    golden.add_tensor("tokens", np.array(tokens, np.int32))
    golden.add_tensor("logits", logits.numpy().astype(np.float32))
    golden.write_header_to_file()
    golden.write_kv_data_to_file()
    golden.write_tensors_to_file()
    golden.close()
    print(f"{name}: std {float(logits.std()):.2f}, largest {float(logits.abs().max()):.1f}")


def make(folder, name):
    kind, arch, config = MODELS[name]
    dtypes = DTYPES.get(name, {})
    model, cfg, rng = make_model(kind, config, zlib.crc32(name.encode()), dtypes)
    tokens, logits = choose_tokens(model, cfg, rng, LONG.get(name, N_TOKENS))
    old = name.endswith("-old")
    out = Writer(f"{folder}/{name}.gguf", arch, dtypes)
    write_keys(out, name, cfg)
    write_attention_keys(out, cfg, old)
    write_expert_keys(out, cfg)
    words, types = byte_tokens()
    out.w.add_tokenizer_model("gpt2")
    out.w.add_tokenizer_pre("gpt-2")
    out.w.add_token_list(words)
    out.w.add_token_types(types)
    out.w.add_token_merges(MERGES)
    out.w.add_bos_token_id(262)
    out.w.add_eos_token_id(263)
    write_tensors(out, model, cfg, old)
    out.close()
    write_golden(folder, name, model, config, tokens, logits)


if __name__ == "__main__":
    for wanted in sys.argv[2:] or MODELS:
        make(sys.argv[1], wanted)
