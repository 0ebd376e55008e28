"""Makes models of tests/data/models as the files of the wild are made: by llama.cpp's converter, from Hugging Face models.

As make_hf_models.py, whose oracle (transformers in float64) and weights it takes; but keys, their types and the tensors'
names are the converter's own. So these models show what real files of their families say and leave out. Needs torch,
transformers (5.24), numpy, and a checkout of llama.cpp; deterministic. Tests never run this.

  python3 tools/make_converted_models.py LLAMA_CPP tests/data/models [NAME...]
"""
import json
import logging
import sys
import tempfile
import zlib
from pathlib import Path

sys.path[1:1] = [sys.argv[1], sys.argv[1] + "/gguf-py"]

import gguf  # noqa: E402
import torch  # noqa: E402
from conversion import get_model_class  # noqa: E402
from conversion.granite import GraniteHybridModel  # noqa: E402

import make_hf_models as hf  # noqa: E402

DEFAULT = {"rope_type": "default", "rope_theta": 10000.0}

# name: (class, config)
MODELS = {
    # Granite 4 without layers that have a state: heads in an array, keys of such layers, a switch for the rotation.
    "granite4": ("GraniteMoeHybrid", dict(
        hidden_size=96, intermediate_size=40, shared_intermediate_size=40, num_hidden_layers=3, num_attention_heads=4,
        num_key_value_heads=1, num_local_experts=0, num_experts_per_tok=0, tie_word_embeddings=True,
        attention_multiplier=0.1, embedding_multiplier=12.0, residual_multiplier=0.22, logits_scaling=0.5,
        position_embedding_type="rope", layer_types=["full_attention"] * 3, mamba_n_heads=4, mamba_expand=2,
        mamba_d_state=16, mamba_n_groups=1, rope_parameters=DEFAULT)),
    # A dense layer among those with experts, a wide shared expert, no biases, a magnitude of its own for YaRN.
    "qwen2moe-dense": ("Qwen2Moe", dict(
        hidden_size=60, intermediate_size=72, moe_intermediate_size=24, shared_expert_intermediate_size=88,
        num_hidden_layers=4, num_attention_heads=3, num_key_value_heads=1, num_experts=5, num_experts_per_tok=2,
        mlp_only_layers=[1], qkv_bias=False, rope_parameters=dict(
            rope_type="yarn", rope_theta=100.0, factor=4.0, original_max_position_embeddings=16, attention_factor=1.3))),
    # No norms of heads, no biases, a quarter of a head turns, groups, weights not normalized, three shared experts.
    "glm4moe-plain": ("Glm4Moe", dict(
        hidden_size=56, intermediate_size=72, moe_intermediate_size=16, num_hidden_layers=4, num_attention_heads=4,
        num_key_value_heads=4, head_dim=24, n_routed_experts=12, num_experts_per_tok=3, n_group=4, topk_group=2,
        n_shared_experts=3, norm_topk_prob=False, routed_scaling_factor=2.5, first_k_dense_replace=2, use_qk_norm=False,
        attention_bias=False, num_mtp_layers=0, rope_parameters=dict(DEFAULT, partial_rotary_factor=0.25))),
    # GLM 4.7 Flash: of the architecture deepseek2, with V3's router, and no key that says so.
    "deepseek2-glm": ("Glm4MoeLite", dict(
        hidden_size=60, intermediate_size=40, moe_intermediate_size=24, num_hidden_layers=3, num_attention_heads=3,
        n_routed_experts=8, num_experts_per_tok=3, n_group=2, topk_group=1, routed_scaling_factor=1.8, kv_lora_rank=40,
        q_lora_rank=20, qk_rope_head_dim=8, qk_nope_head_dim=20, v_head_dim=24, first_k_dense_replace=1,
        rope_parameters=DEFAULT)),
    # Experts that are tensors of their own, as in Mixtral's first files; heads of 20, one KV head, Llama 3's factors.
    "mixtral-pieces": ("Mixtral", dict(
        hidden_size=48, intermediate_size=40, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=1,
        head_dim=20, num_local_experts=5, num_experts_per_tok=2, rope_parameters=dict(
            rope_type="llama3", rope_theta=500.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
            original_max_position_embeddings=16))),
    # The rotation of the published gpt-oss models, whose range of pairs is not rounded; no biases of attention.
    "gpt-oss-published": ("GptOss", dict(
        hidden_size=40, intermediate_size=24, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1, head_dim=64,
        num_local_experts=4, num_experts_per_tok=2, sliding_window=8, attention_bias=False, tie_word_embeddings=True,
        rope_parameters=dict(rope_type="yarn", rope_theta=150000.0, factor=32.0, original_max_position_embeddings=4096,
                             beta_fast=32.0, beta_slow=1.0, truncate=False))),
    # A log multiplier of 0: YaRN's magnitude is in cosines and sines.
    "mistral3-zero": ("Ministral3", dict(
        hidden_size=48, intermediate_size=72, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=2, head_dim=48,
        rope_parameters=dict(rope_type="yarn", rope_theta=500.0, factor=16.0, original_max_position_embeddings=16,
                             mscale=1.0, mscale_all_dim=0.0, llama_4_scaling_beta=0.1))),
}


def set_vocabulary(self):
    words, types = hf.byte_tokens()
    self.gguf_writer.add_tokenizer_model("gpt2")
    self.gguf_writer.add_tokenizer_pre("gpt-2")
    self.gguf_writer.add_token_list(words)
    self.gguf_writer.add_token_types(types)
    self.gguf_writer.add_token_merges(hf.MERGES)
    self.gguf_writer.add_bos_token_id(262)
    self.gguf_writer.add_eos_token_id(263)


def as_usual(function):
    """With torch as it is, not as the oracle changes it."""
    lifted = torch.Tensor.float
    torch.Tensor.float = as_usual.float
    torch.set_default_dtype(torch.float32)
    try:
        return function()
    finally:
        torch.Tensor.float = lifted
        torch.set_default_dtype(torch.float64)


as_usual.float = torch.Tensor.float


def save(model, cfg, folder):
    copy = type(model)._from_config(cfg, dtype=torch.float32)
    copy.load_state_dict({name: values.to(torch.float32) for name, values in model.state_dict().items()})
    copy.save_pretrained(folder)


def in_pieces(writer):
    """Stacks of experts are written as tensors of their own."""
    add = writer.add_tensor

    def add_pieces(name, data, **keys):
        stem, stacked, _ = name.partition("_exps.weight")
        if not stacked:
            add(name, data, **keys)
            return
        for i, piece in enumerate(data):
            add(f"{stem}.{i}.weight", piece.copy(), **keys)
    writer.add_tensor = add_pieces


def convert(folder, path, pieces):
    cls = get_model_class(json.loads((folder / "config.json").read_text())["architectures"][0])
    for c in (cls, getattr(cls, "Ministral3Model", cls)):
        c.set_vocab = set_vocabulary
    model = cls(folder, gguf.LlamaFileType.MOSTLY_F16, path, eager=True)
    if pieces:
        in_pieces(model.gguf_writer)
    model.write()


def allow_more():
    """What the converter itself refuses: dense layers in between; and it knows only an older name of a kind of layer."""
    M = gguf.MODEL_TENSOR
    gguf.MODEL_TENSORS[gguf.MODEL_ARCH.QWEN2MOE] += [M.FFN_GATE, M.FFN_UP, M.FFN_DOWN]
    GraniteHybridModel.get_attn_layers = lambda self: list(range(self.block_count))


def make(folder, name):
    kind, config = MODELS[name]
    model, cfg, rng = hf.make_model(kind, config, zlib.crc32(name.encode()), {})
    tokens, logits = hf.choose_tokens(model, cfg, rng)
    with tempfile.TemporaryDirectory() as temporary:
        source = Path(temporary) / ("tiny-" + name)
        as_usual(lambda: save(model, cfg, source))
        as_usual(lambda: convert(source, Path(folder) / f"{name}.gguf", name.endswith("-pieces")))
    hf.write_golden(folder, name, model, config, tokens, logits)


if __name__ == "__main__":
    logging.disable(logging.WARNING)
    allow_more()
    for wanted in sys.argv[3:] or MODELS:
        make(sys.argv[2], wanted)
