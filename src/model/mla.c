// Multi-head latent attention. A token's keys and values of all heads come from one latent c of kv_lora_rank elements:
// head h has k_h = [K_h c, r], v_h = V_h c, where r is a rotated part that the heads share. Since q·(K c) = (Kᵀ q)·c,
// K and V are moved out of the sum over positions ("absorbed"): queries are brought to the latent's space by K_hᵀ, the
// heads attend to [c, r] as to a single key whose first part is the value, and what comes out goes through V_h. So the
// cache holds n_latent + n_rot numbers a token, and prompt and decoding are one form, whose bits are the same.
// Source: DeepSeek-AI, DeepSeek-V2, 2024 (section 2.1 and appendix C).
#include "model/model.h"

#include "tensor/elementary.h"

#include <math.h>
#include <string.h>

// Of the norms of the queries' and the keys' latents: fixed by the models' definition, whatever the file says of the
// other norms.
static const float latent_epsilon = 1e-6f;

static void check(struct builder *builder, bool good, const char *key, uint32_t value, const char *wanted)
{
    if (!good)
        build_fail(builder, STATUS_INVALID, "%s.%s is %u, but it must %s: the file is damaged or badly converted",
                   builder->h->architecture, key, value, wanted);
}

// 1/sqrt(length of a head's key); with YaRN times the square of a magnitude that other models multiply into cosines and
// sines: here it is of the whole score, also of the part that is not rotated. The key holds 0.1 · mscale_all_dim.
static float score_scale(struct builder *builder, uint32_t key_length)
{
    double scale = 1 / sqrt((double)key_length);
    float factor = build_f32(builder, "rope.scaling.factor", 1);
    float multiplier = build_f32(builder, "rope.scaling.yarn_log_multiplier", 0);
    if (multiplier != 0 && factor > 1) {
        double magnitude = (double)multiplier * elementary_log((double)factor) + 1;
        scale *= magnitude * magnitude;
    }
    return (float)scale;
}

void build_mla_options(struct builder *builder, struct mla_options *options)
{
    const struct hyperparameters *h = builder->h;
    *options = (struct mla_options){0};
    options->n_latent = build_u32(builder, "attention.kv_lora_rank", 0);
    check(builder, options->n_latent > 0 && options->n_latent <= 65536, "attention.kv_lora_rank", options->n_latent,
          "be between 1 and 65536");
    options->n_q_latent = build_u32(builder, "attention.q_lora_rank", 0);
    check(builder, options->n_q_latent <= 65536, "attention.q_lora_rank", options->n_q_latent, "be at most 65536");
    // Older files give the lengths of a head as key_length and value_length; newer ones give there what is cached.
    uint32_t key_length = build_u32(builder, "attention.key_length_mla", h->head_dim);
    check(builder, key_length > h->n_rot && key_length <= 4096, "attention.key_length_mla", key_length,
          "be more than rope.dimension_count and at most 4096");
    options->n_nope = key_length - h->n_rot;
    options->v_dim = build_u32(builder, "attention.value_length_mla", h->v_dim);
    check(builder, options->v_dim > 0 && options->v_dim <= 4096, "attention.value_length_mla", options->v_dim,
          "be between 1 and 4096");
    options->score_scale = score_scale(builder, key_length);
    options->temperature = build_temperature(builder);
    options->rope = build_rope(builder, build_f32(builder, "rope.freq_base", 10000), ROPE_SCALED);
}

// weight x, and its bias where the file has one (added later: see build_mla).
struct projection {
    struct tensor *value, *bias;
};

static struct projection project(struct builder *builder, struct tensor *x, const char *weight, const char *bias,
                                 uint32_t layer, size_t n)
{
    struct tensor *matrix = build_matrix(builder, weight, layer, builder->h->n_embd, n);
    return (struct projection){.value = graph_matmul(builder->graph, matrix, x, 0),
                               .bias = build_optional_vector(builder, bias, layer, n)};
}

static struct tensor *with_bias(struct builder *builder, struct projection projection)
{
    return projection.bias == NULL ? projection.value : graph_add(builder->graph, projection.value, projection.bias);
}

// Which matrices bring a head to the latent's space and back. Older files have [K_h; V_h] of all heads below each other
// in attn_kv_b, and K_h must be turned.
struct absorbed {
    struct tensor *k; // [n_nope, n_latent, n_head]
    struct tensor *v; // [n_latent, v_dim, n_head]
};

static struct absorbed absorbed_matrices(struct builder *builder, uint32_t layer, const struct mla_options *o)
{
    size_t n_head = builder->h->n_head, rows = (size_t)o->n_nope + o->v_dim;
    const char *old = "blk.%u.attn_kv_b.weight";
    if (build_has_tensor(builder, old, layer) && !build_has_tensor(builder, "blk.%u.attn_k_b.weight", layer))
        return (struct absorbed){
            .k = build_turned_stack(builder, old, layer, o->n_nope, o->n_latent, n_head, rows),
            .v = build_flat_stack_part(builder, old, layer, o->n_latent, o->v_dim, n_head, o->n_nope, rows),
        };
    return (struct absorbed){
        .k = build_stack(builder, "blk.%u.attn_k_b.weight", layer, o->n_nope, o->n_latent, n_head),
        .v = build_stack(builder, "blk.%u.attn_v_b.weight", layer, o->n_latent, o->v_dim, n_head),
    };
}

// q [n_head · (n_latent + n_rot), rows], k [n_latent + n_rot, rows] → [n_head · n_latent, rows]
static struct tensor *attend(struct builder *builder, const struct mla_options *o, struct tensor *q, struct tensor *k)
{
    uint32_t head_dim = o->n_latent + builder->h->n_rot;
    struct kv_layer cache = {.n_head = 1, .k_dim = head_dim, .v_dim = o->n_latent, .v_in_k = true};
    struct attributes attributes = {
        .layer = graph_kv_layer(builder->graph, cache),
        .n_head = builder->h->n_head,
        .n_kv_head = 1,
        .head_dim = head_dim,
        .v_dim = o->n_latent,
        .v_in_k = true,
        .score_scale = o->score_scale,
    };
    return graph_attention(builder->graph, q, k, NULL, NULL, &attributes);
}

// Nodes are in an order that makes few steps: all that is done to rows lies between the products that need it.
struct tensor *build_mla(struct builder *builder, uint32_t layer, struct tensor *x, const struct mla_options *o)
{
    const struct hyperparameters *h = builder->h;
    struct graph *graph = builder->graph;
    uint32_t n_rot = h->n_rot, n_latent = o->n_latent, head_dim = o->n_nope + n_rot;
    size_t n_q = (size_t)h->n_head * head_dim;
    struct absorbed absorbed = absorbed_matrices(builder, layer, o);

    struct projection pq, pkv;
    if (o->n_q_latent != 0)
        pq = project(builder, x, "blk.%u.attn_q_a.weight", "blk.%u.attn_q_a.bias", layer, o->n_q_latent);
    else
        pq = project(builder, x, "blk.%u.attn_q.weight", "blk.%u.attn_q.bias", layer, n_q);
    pkv = project(builder, x, "blk.%u.attn_kv_a_mqa.weight", "blk.%u.attn_kv_a_mqa.bias", layer, n_latent + n_rot);
    struct tensor *q = with_bias(builder, pq), *kv = with_bias(builder, pkv);

    struct tensor *c_norm = build_vector(builder, "blk.%u.attn_kv_a_norm.weight", layer, n_latent);
    struct tensor *c = graph_slice(graph, kv, n_latent + n_rot, 0, n_latent);
    struct tensor *k_rot = graph_slice(graph, kv, n_latent + n_rot, n_latent, n_rot);
    c = graph_rms_norm(graph, c, c_norm, latent_epsilon, 0); // [n_latent, rows]
    if (o->n_q_latent != 0) {
        struct tensor *q_norm = build_vector(builder, "blk.%u.attn_q_a_norm.weight", layer, o->n_q_latent);
        struct tensor *q_b = build_matrix(builder, "blk.%u.attn_q_b.weight", layer, o->n_q_latent, n_q);
        q = graph_matmul(graph, q_b, graph_rms_norm(graph, q, q_norm, latent_epsilon, 0), 0);
    }
    struct tensor *q_nope = graph_slice(graph, q, head_dim, 0, o->n_nope);    // [n_head · n_nope, rows]
    struct tensor *q_rot = graph_slice(graph, q, head_dim, o->n_nope, n_rot); // [n_head · n_rot, rows]
    q_nope = graph_matmul_heads(graph, absorbed.k, q_nope);                   // [n_head · n_latent, rows]

    q_rot = graph_rope(graph, q_rot, n_rot, n_rot, o->rope, false);
    k_rot = graph_rope(graph, k_rot, n_rot, n_rot, o->rope, false);
    q = graph_concat(graph, q_nope, n_latent, q_rot, n_rot);
    struct tensor *k = graph_concat(graph, c, n_latent, k_rot, n_rot);
    if (o->temperature.scale != 0)
        q = graph_position_scale(graph, q, n_latent + n_rot, o->temperature.scale, o->temperature.length);

    struct tensor *y = graph_matmul_heads(graph, absorbed.v, attend(builder, o, q, k)); // [n_head · v_dim, rows]
    struct tensor *output =
        build_matrix(builder, "blk.%u.attn_output.weight", layer, (size_t)h->n_head * o->v_dim, h->n_embd);
    struct tensor *bias = build_optional_vector(builder, "blk.%u.attn_output.bias", layer, h->n_embd);
    y = graph_matmul(graph, output, y, o->v_dim); // segments are whole heads
    return bias == NULL ? y : graph_add(graph, y, bias);
}
