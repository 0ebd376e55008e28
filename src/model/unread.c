// What a file asks for and nothing looked at. A tensor of the file that the graph does not have, or a key known to
// change what a model computes, is refused: an answer without it would be another model's. Keys that are not in the
// table below change nothing (docs/gguf.md names those that files have).
#include "model/model.h"

#include <stdio.h>
#include <string.h>

// A key behind "ARCHITECTURE.", or, with a dot at its end, all keys that begin so.
struct meaning {
    const char *key;
    const char *what;
    bool neutral_one; // 1 asks for nothing, as 0 does
};

static const struct meaning meanings[] = {
    {"activation_sparsity_scale", "sparse activations", false},
    {"altup.", "alternating updates", false},
    {"attention.causal", "attention to later positions", true},
    {"attention.clamp_kqv", "bounds of q, k and v", false},
    {"attention.compress_ratios", "compressed attention", false},
    {"attention.indexer.", "an indexer that selects positions", false},
    {"attention.key_length_mla", "latent attention (MLA)", false},
    {"attention.key_length_swa", "heads of another size in layers with a window", false},
    {"attention.kv_lora_rank", "latent attention (MLA)", false},
    {"attention.max_alibi_bias", "ALiBi instead of rotations", false},
    {"attention.output_lora_rank", "an output projection of two steps", false},
    {"attention.output_scale", "a scale of the attention's output", true},
    {"attention.relative_buckets_count", "relative positions", false},
    {"attention.scale", "a scale of the scores", false},
    {"attention.shared_kv_layers", "layers that share keys and values", false},
    {"attention.sliding_window", "a sliding window", false},
    {"attention.temperature_scale", "a temperature that grows with the position", false},
    {"attention.value_length_swa", "heads of another size in layers with a window", false},
    {"attention.value_scale", "a scale of the values", true},
    {"attn_logit_softcapping", "a cap on attention scores", false},
    {"embedding_length_per_layer_input", "embeddings of each layer", false},
    {"embedding_scale", "a scale of the embedding", true},
    {"expert_chunk_feed_forward_length", "chunks of experts", false},
    {"expert_count", "experts", false},
    {"expert_group_scale", "a scale of groups of experts", true},
    {"final_logit_softcapping", "a cap on logits", false},
    {"full_attention_interval", "layers without attention", true},
    {"hash_layer_count", "experts chosen by the token", false},
    {"hidden_activation", "another activation", false},
    {"hyper_connection.", "hyper-connections", false},
    {"kda.", "layers with a state", false},
    {"logit_scale", "a scale of the logits", true},
    {"moe_latent_size", "experts of another width", false},
    {"n_deepstack_layers", "inputs from images in several layers", false},
    {"num_loops", "layers that are run several times", true},
    {"rescale_every_n_layers", "halving every few layers", false},
    {"residual_scale", "a scale of what each block adds", true},
    {"rope.dimension_count_swa", "another rotation in layers with a window", false},
    {"rope.dimension_sections", "positions of several dimensions", false},
    {"rope.scaling.alpha", "dynamic NTK scaling of the rotation", false},
    {"rope.scaling.attn_factor", "a scale of the rotation without YaRN", true},
    {"rope.scaling.yarn_attn_factor", "a scale of the rotation without YaRN", true},
    {"router_logit_softcapping", "a cap on the router's logits", false},
    {"shortconv.", "convolutions", false},
    {"ssm.", "layers with a state", false},
    {"swiglu_clamp_exp", "bounds of the experts' activation", false},
    {"swiglu_clamp_shexp", "bounds of the shared expert's activation", false},
    {"swin_norm", "norms in other places", false},
    {"token_shift_count", "token shift", false},
    {"use_parallel_residual", "attention and feed-forward in parallel", false},
    {"wkv.", "layers with a state", false},
};

static bool key_means(const char *key, const struct meaning *meaning)
{
    size_t length = strlen(meaning->key);
    return strncmp(key, meaning->key, length) == 0 && (meaning->key[length - 1] == '.' || key[length] == '\0');
}

static bool is_one(const struct gguf_value *value)
{
    if (value->type == GGUF_STRING || value->type == GGUF_ARRAY)
        return false;
    return value->type == GGUF_F32 || value->type == GGUF_F64 ? value->f == 1 : value->u == 1;
}

// Whether a key says of layers with a window what holds of all.
static bool repeats(const struct hyperparameters *h, const char *key, const struct gguf_value *value)
{
    const struct {
        const char *key;
        uint32_t of_all;
    } lengths[] = {{"attention.key_length_swa", h->head_dim},
                   {"attention.value_length_swa", h->v_dim},
                   {"rope.dimension_count_swa", h->n_rot}};
    for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
        if (strcmp(key, lengths[i].key) == 0)
            return value->type != GGUF_STRING && value->type != GGUF_ARRAY && value->u == lengths[i].of_all;
    }
    return false;
}

static void check_key(struct builder *builder, const struct gguf_value *value, const char *key)
{
    for (size_t i = 0; i < sizeof(meanings) / sizeof(meanings[0]); i++) {
        if (!key_means(key, &meanings[i]))
            continue;
        bool causal = strcmp(key, "attention.causal") == 0; // false asks for something
        if (value->type == GGUF_STRING && strcmp(value->string.text, "silu") == 0)
            return; // hidden_activation: the one of all families here
        if (causal ? is_one(value) : gguf_value_is_zero(value) || (meanings[i].neutral_one && is_one(value)))
            return;
        if (repeats(builder->h, key, value))
            return;
        build_fail(builder, STATUS_UNSUPPORTED,
                   "%s asks for %s, which this version does not do for the architecture '%s'", value->key.text,
                   meanings[i].what, builder->h->architecture);
    }
}

// Whether a tensor needs no reader: rotations that are computed from keys, encoders of images and sound that some files
// hold beside the language model, and the layers at the end that predict further tokens.
static bool tensor_is_spare(struct builder *builder, const char *name)
{
    const char *dot = strncmp(name, "blk.", 4) == 0 ? strchr(name + 4, '.') : NULL;
    if (dot != NULL && strcmp(dot, ".attn_kv_b.weight") == 0 &&
        build_find_key(builder, "attention.kv_lora_rank") != NULL)
        return true; // attn_k_b and attn_v_b hold the same
    if (strcmp(name, "rope_freqs.weight") == 0 || (dot != NULL && strcmp(dot, ".attn_rot_embd.weight") == 0))
        return true;
    if (strncmp(name, "v.", 2) == 0 || strncmp(name, "a.", 2) == 0 || strncmp(name, "mm.", 3) == 0)
        return true;
    if (dot == NULL || dot - name > 4 + 9)
        return false;
    uint32_t layer = 0;
    for (const char *digit = name + 4; digit < dot; digit++) {
        if (*digit < '0' || *digit > '9')
            return false;
        layer = 10 * layer + (uint32_t)(*digit - '0');
    }
    uint32_t n_layer = 0;
    char key[128];
    snprintf(key, sizeof(key), "%s.block_count", builder->h->architecture);
    (void)gguf_get_u32(builder->gguf, key, false, &n_layer, NULL); // read before, so it is there
    return layer >= builder->h->n_layer && layer < n_layer;
}

void build_check_unread(struct builder *builder)
{
    const struct gguf *gguf = builder->gguf;
    size_t length = strlen(builder->h->architecture);
    for (size_t i = 0; i < gguf->n_values; i++) {
        const struct gguf_value *value = &gguf->values[i];
        if (!builder->read[i] && strncmp(value->key.text, builder->h->architecture, length) == 0 &&
            value->key.text[length] == '.')
            check_key(builder, value, value->key.text + length + 1);
    }
    for (size_t i = 0; i < gguf->n_tensors; i++) {
        if (!builder->used[i] && !tensor_is_spare(builder, gguf->tensors[i].name))
            build_fail(builder, STATUS_UNSUPPORTED,
                       "tensor '%s' is not one that this version uses for the architecture '%s': without it the answer "
                       "would be another model's",
                       gguf->tensors[i].name, builder->h->architecture);
    }
}
