// Every op of the table as a small graph: its values come of products with weights of F32, so that they can be whole, a
// shard or a partial sum, as the test likes. Include it once, after small_graph.h.
#ifndef MOTE_TESTS_MESH_OPS_CASES_H
#define MOTE_TESTS_MESH_OPS_CASES_H

enum { N_EMBD = 128, N_EXPERT = 6, N_USED = 3, HEAD = 8, N_ROT = 6, N_VOCABULARY = 75 };

struct op_case {
    enum op op;
    const char *name;
    struct tensor *(*build)(struct small_graph *small, const struct op_case *c); // the op's result
    size_t unit;      // where a shard of the result is cut; 0: anywhere
    size_t n_tokens;  // 0: 19
    enum dtype dtype; // of its weights
    enum precision precision;
    size_t k;
    struct attributes attributes; // of the op, where they are the case
    enum kv_dtype kv;
};

// Multiplies the rows of an F32 weight by a large power of two here and there, so that some segments of what comes of
// it must be scaled to fit in F16.
static void enlarge_rows(struct small_graph *small, const struct tensor *weight)
{
    float *values = (float *)(void *)small->bytes[weight->index];
    for (size_t row = 0; row < weight->ne[1] * weight->ne[2]; row++)
        for (size_t i = 0; row / 24 % 3 == 1 && i < weight->ne[0]; i++)
            values[row * weight->ne[0] + i] *= 0x1p17f;
}

static struct tensor *named_weight(struct small_graph *small, const char *name, enum dtype dtype, size_t k, size_t n,
                                   size_t count)
{
    char unique[48];
    snprintf(unique, sizeof(unique), "%s.%zu", name, small->graph.n_weights);
    return small_graph_weight(small, unique, dtype, k, n, count);
}

static struct tensor *embedded(struct small_graph *small)
{
    if (small->graph.n_nodes > 0)
        return small->graph.nodes[0]->result;
    return graph_embed(&small->graph, named_weight(small, "table", DTYPE_F32, N_EMBD, N_VOCABULARY, 0));
}

// A value [width, rows] that may be placed in every way.
static struct tensor *value(struct small_graph *small, size_t width)
{
    struct tensor *x = embedded(small), *weight = named_weight(small, "value", DTYPE_F32, N_EMBD, width, 0);
    enlarge_rows(small, weight);
    return graph_matmul(&small->graph, weight, x, 0);
}

// Not beyond what exponentials make of it.
static struct tensor *small_value(struct small_graph *small, size_t width)
{
    return graph_matmul(&small->graph, named_weight(small, "value", DTYPE_F32, N_EMBD, width, 0), embedded(small), 0);
}

static struct tensor *routed(struct small_graph *small)
{
    static const struct routing routing = {.n_expert = N_EXPERT, .n_used = N_USED, .normalize = true};
    for (size_t i = 0; i < small->graph.n_nodes; i++)
        if (small->graph.nodes[i]->op == OP_ROUTE)
            return small->graph.nodes[i]->result;
    return graph_route(&small->graph, small_value(small, N_EXPERT), NULL, &routing, 0);
}

// A value [width, pairs], whole or a shard.
static struct tensor *pairs(struct small_graph *small, size_t width)
{
    struct tensor *route = routed(small);
    struct tensor *weight = named_weight(small, "pairs", DTYPE_F32, N_EMBD, width, N_EXPERT);
    enlarge_rows(small, weight);
    return graph_mul_mat_id(&small->graph, weight, embedded(small), route, NULL, false);
}

// ---- the ops ----

static struct tensor *build_embed(struct small_graph *small, const struct op_case *c)
{
    return graph_embed(&small->graph, named_weight(small, "rows", c->dtype, c->k, N_VOCABULARY, 0));
}

static struct tensor *build_unary(struct small_graph *small, const struct op_case *c)
{
    struct tensor *x = small_value(small, 72);
    return graph_apply(&small->graph, c->op, &c->attributes, &x);
}

static struct tensor *build_unary_pairs(struct small_graph *small, const struct op_case *c)
{
    struct tensor *x = pairs(small, 72);
    return graph_apply(&small->graph, c->op, &c->attributes, &x);
}

static struct tensor *build_binary(struct small_graph *small, const struct op_case *c)
{
    struct tensor *a = small_value(small, 72), *b = value(small, 72);
    return graph_apply(&small->graph, c->op, &c->attributes, (struct tensor *[]){a, b});
}

static struct tensor *build_binary_pairs(struct small_graph *small, const struct op_case *c)
{
    struct tensor *a = pairs(small, 72), *b = pairs(small, 72);
    return graph_apply(&small->graph, c->op, &c->attributes, (struct tensor *[]){a, b});
}

static struct tensor *build_with_vector(struct small_graph *small, const struct op_case *c)
{
    struct tensor *x = value(small, 72), *weight = named_weight(small, "vector", c->dtype, 72, 0, 0);
    return graph_apply(&small->graph, c->op, &c->attributes, (struct tensor *[]){x, weight});
}

static struct tensor *build_norm(struct small_graph *small, const struct op_case *c)
{
    uint32_t head_dim = c->attributes.head_dim;
    struct tensor *weight = named_weight(small, "norm", DTYPE_F32, head_dim == 0 ? 72 : head_dim, 0, 0);
    return graph_rms_norm(&small->graph, value(small, 72), weight, 1e-5f, head_dim);
}

static struct tensor *build_twice(struct small_graph *small, const struct op_case *c)
{
    struct tensor *x = value(small, 72);
    return graph_apply(&small->graph, c->op, NULL, (struct tensor *[]){x, x});
}

static struct tensor *build_add_scaled(struct small_graph *small, const struct op_case *c)
{
    struct tensor *y = value(small, 72), *x = small_value(small, 72);
    return graph_add_scaled(&small->graph, y, x, c->attributes.factor != 0 ? small_value(small, 1) : NULL);
}

static struct tensor *build_concat(struct small_graph *small, const struct op_case *c)
{
    struct tensor *a = small_value(small, (size_t)9 * HEAD);
    return graph_concat(&small->graph, a, HEAD, value(small, c->attributes.group == 0 ? 9 * 4 : 4), 4);
}

static struct tensor *build_matmul(struct small_graph *small, const struct op_case *c)
{
    struct tensor *x = value(small, c->k), *weight = named_weight(small, "weight", c->dtype, c->k, 41, 0);
    struct tensor *y = graph_matmul(&small->graph, weight, x, c->attributes.segment_unit);
    if (y != NULL)
        y->producer->attributes.precision = c->precision;
    return y;
}

static struct tensor *build_matmul_heads(struct small_graph *small, const struct op_case *c)
{
    struct tensor *x = value(small, 5 * c->k), *weight = named_weight(small, "weight", c->dtype, c->k, 12, 5);
    struct tensor *y = graph_matmul_heads(&small->graph, weight, x);
    if (y != NULL)
        y->producer->attributes.precision = c->precision;
    return y;
}

static struct tensor *build_attention(struct small_graph *small, const struct op_case *c)
{
    const struct attributes *a = &c->attributes;
    struct attributes attributes = *a;
    struct tensor *q = small_value(small, (size_t)a->n_head * a->head_dim);
    struct tensor *k = small_value(small, (size_t)a->n_kv_head * a->head_dim), *v = NULL, *sinks = NULL;
    if (!a->v_in_k)
        v = value(small, (size_t)a->n_kv_head * a->v_dim);
    if (a->group != 0) // here: with sinks
        sinks = named_weight(small, "sinks", DTYPE_F32, a->n_head, 0, 0);
    attributes.group = 0;
    attributes.score_scale = 0.125f;
    attributes.layer = graph_kv_layer(
        &small->graph,
        (struct kv_layer){
            .n_head = a->n_kv_head, .k_dim = a->head_dim, .v_dim = a->v_dim, .window = a->window, .v_in_k = a->v_in_k});
    return graph_attention(&small->graph, q, k, v, sinks, &attributes);
}

static struct tensor *build_select_rows(struct small_graph *small, const struct op_case *c)
{
    (void)c;
    return graph_select_rows(&small->graph, value(small, 72));
}

static struct tensor *build_route(struct small_graph *small, const struct op_case *c)
{
    struct tensor *logits = small_value(small, N_EXPERT),
                  *bias = named_weight(small, "bias", DTYPE_F32, N_EXPERT, 0, 0);
    return graph_route(&small->graph, logits, bias, &c->attributes.routing, 0);
}

static struct tensor *build_mul_mat_id(struct small_graph *small, const struct op_case *c)
{
    struct tensor *route = routed(small), *x = c->attributes.group == 0 ? value(small, c->k) : pairs(small, c->k);
    struct tensor *weight = named_weight(small, "experts", c->dtype, c->k, 41, N_EXPERT);
    struct tensor *scale = named_weight(small, "scale", DTYPE_F32, N_EXPERT, 0, 0);
    struct tensor *y = graph_mul_mat_id(&small->graph, weight, x, route, scale, c->attributes.group != 0);
    if (y != NULL)
        y->producer->attributes.precision = c->precision;
    return y;
}

static struct tensor *build_add_id(struct small_graph *small, const struct op_case *c)
{
    struct tensor *route = routed(small), *x = c->op == OP_ADD_ID ? pairs(small, 72) : value(small, 72);
    struct tensor *bias = named_weight(small, "bias", c->dtype, 72, N_EXPERT, 0);
    return graph_apply(&small->graph, c->op, NULL, (struct tensor *[]){x, bias, route});
}

// attributes.width: of the shared expert's hidden units; 0: there is none. group: it has a gate.
static struct tensor *build_mul_mat_id_sum(struct small_graph *small, const struct op_case *c)
{
    struct tensor *route = routed(small), *x = pairs(small, c->k);
    struct tensor *weight = named_weight(small, "down", c->dtype, c->k, 41, N_EXPERT);
    struct tensor *scale = named_weight(small, "scale", DTYPE_F32, N_EXPERT, 0, 0);
    struct shared_expert shared = {0};
    if (c->attributes.width != 0) {
        shared.weight = named_weight(small, "shared", c->dtype, c->attributes.width, 41, 0);
        shared.hidden = value(small, c->attributes.width);
        if (c->attributes.group != 0)
            shared.gate = small_value(small, 1);
    }
    struct tensor *y =
        graph_mul_mat_id_sum(&small->graph, weight, x, route, scale, c->attributes.width != 0 ? &shared : NULL, false);
    if (y != NULL)
        y->producer->attributes.precision = y->producer->attributes.shared_precision = c->precision;
    return y;
}

// ---- adapters ----

// Two adapters' pairs for a weight of this name. k, n: of the weight.
static void add_pairs(struct small_graph *small, const char *weight, size_t k, size_t n, size_t count)
{
    static const char *const names[2][2] = {{"one.a", "one.b"}, {"two.a", "two.b"}};
    static char texts[32][64];
    static struct lora_pair lora_pairs[16];
    struct graph *graph = &small->graph;
    graph->lora_pairs = lora_pairs;
    for (uint32_t i = 0; i < 2; i++) {
        size_t rank = i == 0 ? 5 : 20, at = graph->n_lora_pairs++;
        assert_in_range(at, 0, 15);
        for (int j = 0; j < 2; j++)
            snprintf(texts[2 * at + (size_t)j], sizeof(texts[0]), "%s of %s", names[i][j], weight);
        lora_pairs[at] = (struct lora_pair){
            .adapter = i,
            .weight = weight,
            .a = {.name = texts[2 * at], .dtype = i == 0 ? DTYPE_F32 : DTYPE_F16, .ne = {k, rank, count}},
            .b = {.name = texts[2 * at + 1], .dtype = DTYPE_F16, .ne = {rank, n, count}},
            .factor = 0.5f + (float)i};
    }
}

// How much of both each row takes: of every third one nothing.
static void use_adapters(struct small_graph *small)
{
    static const float scales[] = {0, 0, 1, 0, 0.25f, -2};
    small->adapter_scales = scales;
    small->n_adapters = 2;
    for (size_t i = 0; i < small->n_tokens; i++)
        small->row_adapters[i] = (uint32_t)(i / 2 % 3);
    small_graph_fill_adapters(small);
}

static struct tensor *build_lora(struct small_graph *small, const struct op_case *c)
{
    add_pairs(small, "adapted", c->k, 41, 1);
    struct tensor *y =
        graph_matmul(&small->graph, small_graph_weight(small, "adapted", c->dtype, c->k, 41, 0), value(small, c->k), 0);
    use_adapters(small);
    return y;
}

static struct tensor *build_lora_of_experts(struct small_graph *small, const struct op_case *c)
{
    add_pairs(small, "adapted", c->k, 41, N_EXPERT);
    struct tensor *route = routed(small), *x = small_value(small, c->k);
    struct tensor *weight = small_graph_weight(small, "adapted", c->dtype, c->k, 41, N_EXPERT);
    struct tensor *y = graph_mul_mat_id(&small->graph, weight, x, route, NULL, true);
    use_adapters(small);
    return y;
}

#define PRODUCT(of, with, type, rounded, width)                                                                        \
    {                                                                                                                  \
        .op = (of), .name = #of " " #type " x " #rounded, .build = (with), .dtype = DTYPE_##type,                      \
        .precision = PRECISION_##rounded, .k = (width)                                                                 \
    }
#define ATTENTION(text, store, ...)                                                                                    \
    {                                                                                                                  \
        .op = OP_ATTENTION, .name = "attention, " text, .build = build_attention, .n_tokens = 70, .kv = (store),       \
        .attributes = {                                                                                                \
            __VA_ARGS__                                                                                                \
        }                                                                                                              \
    }

static const struct op_case op_cases[] = {
    {.op = OP_EMBED, .name = "embed F32", .build = build_embed, .dtype = DTYPE_F32, .k = 40},
    {.op = OP_EMBED, .name = "embed Q4_K", .build = build_embed, .dtype = DTYPE_Q4_K, .k = 256},
    {.op = OP_EMBED, .name = "embed F16", .build = build_embed, .dtype = DTYPE_F16, .k = 33},
    {.op = OP_RMS_NORM, .name = "rms_norm of rows", .build = build_norm},
    {.op = OP_RMS_NORM,
     .name = "rms_norm of heads",
     .build = build_norm,
     .unit = HEAD,
     .attributes = {.head_dim = HEAD}},
    PRODUCT(OP_MATMUL, build_matmul, F32, F32, 200),
    PRODUCT(OP_MATMUL, build_matmul, F16, F16, 456),
    PRODUCT(OP_MATMUL, build_matmul, F16, F32, 176),
    PRODUCT(OP_MATMUL, build_matmul, BF16, F32, 144),
    PRODUCT(OP_MATMUL, build_matmul, BF16, BF16, 160),
    PRODUCT(OP_MATMUL, build_matmul, BF16, F16, 208),
    PRODUCT(OP_MATMUL, build_matmul, Q8_0, Q8, 352),
    PRODUCT(OP_MATMUL, build_matmul, Q8_0, F16, 288),
    PRODUCT(OP_MATMUL, build_matmul, Q8_0, BF16, 96),
    PRODUCT(OP_MATMUL, build_matmul, Q4_K, Q8, 512),
    PRODUCT(OP_MATMUL, build_matmul, Q4_K, F32, 512),
    PRODUCT(OP_MATMUL, build_matmul, Q6_K, Q8, 768),
    PRODUCT(OP_MATMUL, build_matmul, Q6_K, F16, 256),
    PRODUCT(OP_MATMUL, build_matmul, MXFP4, Q8, 416),
    PRODUCT(OP_MATMUL, build_matmul, MXFP4, F16, 96),
    PRODUCT(OP_MATMUL, build_matmul, Q2_K, Q8, 256),
    PRODUCT(OP_MATMUL, build_matmul, Q3_K, Q8, 512),
    PRODUCT(OP_MATMUL, build_matmul, Q5_K, Q8, 256),
    PRODUCT(OP_MATMUL, build_matmul, Q4_1, Q8, 160),
    {.op = OP_MATMUL,
     .name = "matmul of heads of 24",
     .build = build_matmul,
     .dtype = DTYPE_F16,
     .precision = PRECISION_F16,
     .k = (size_t)10 * 24,
     .attributes = {.segment_unit = 24}},
    {.op = OP_MATMUL,
     .name = "matmul of heads of 48",
     .build = build_matmul,
     .dtype = DTYPE_Q8_0,
     .precision = PRECISION_Q8,
     .k = (size_t)6 * 48,
     .attributes = {.segment_unit = 48}},
    {.op = OP_ADD, .name = "add", .build = build_binary},
    {.op = OP_ADD, .name = "add of pairs", .build = build_binary_pairs},
    {.op = OP_ADD, .name = "add of a bias", .build = build_with_vector, .dtype = DTYPE_F16},
    {.op = OP_ADD, .name = "add of one value", .build = build_twice},
    {.op = OP_MUL, .name = "mul", .build = build_binary},
    {.op = OP_MUL, .name = "mul with a row", .build = build_with_vector, .dtype = DTYPE_F32},
    {.op = OP_SCALE, .name = "scale", .build = build_unary, .attributes = {.factor = 1.25f}},
    {.op = OP_SCALE, .name = "scale of pairs", .build = build_unary_pairs, .attributes = {.factor = 0.3f}},
    {.op = OP_GLU, .name = "glu", .build = build_binary, .attributes = {.activation = ACTIVATION_GELU}},
    {.op = OP_GLU,
     .name = "glu of pairs",
     .build = build_binary_pairs,
     .attributes = {.activation = ACTIVATION_SILU_CLAMPED, .limit = 7, .alpha = 1.702f}},
    {.op = OP_ROPE,
     .name = "rope",
     .build = build_unary,
     .unit = HEAD,
     .attributes = {.head_dim = HEAD, .n_rot = N_ROT, .neox = true}},
    ATTENTION("groups of 3", KV_DTYPE_F16, .n_head = 6, .n_kv_head = 2, .head_dim = 24, .v_dim = 16),
    ATTENTION("sinks, a window", KV_DTYPE_F32, .n_head = 8, .n_kv_head = 4, .head_dim = 16, .v_dim = 16, .window = 9,
              .group = 1),
    ATTENTION("Q8_0, groups of 5", KV_DTYPE_Q8_0, .n_head = 10, .n_kv_head = 2, .head_dim = 32, .v_dim = 32,
              .softcap = 20),
    ATTENTION("one KV head", KV_DTYPE_F16, .n_head = 5, .n_kv_head = 1, .head_dim = 16, .v_dim = 8),
    ATTENTION("a head each", KV_DTYPE_F32, .n_head = 3, .n_kv_head = 3, .head_dim = 8, .v_dim = 8),
    ATTENTION("values in keys", KV_DTYPE_F16, .n_head = 7, .n_kv_head = 1, .head_dim = 24, .v_dim = 16, .v_in_k = true),
    {.op = OP_SELECT_ROWS, .name = "select_rows", .build = build_select_rows},
    {.op = OP_ROUTE,
     .name = "route",
     .build = build_route,
     .attributes = {.routing = {.n_expert = N_EXPERT, .n_used = 2, .gating = GATING_SIGMOID}}},
    PRODUCT(OP_MUL_MAT_ID, build_mul_mat_id, F16, F16, 176),
    PRODUCT(OP_MUL_MAT_ID, build_mul_mat_id, Q4_K, Q8, 256),
    {.op = OP_MUL_MAT_ID,
     .name = "mul_mat_id of pairs",
     .build = build_mul_mat_id,
     .dtype = DTYPE_Q8_0,
     .precision = PRECISION_Q8,
     .k = 96,
     .attributes = {.group = 1}},
    {.op = OP_ADD_ID, .name = "add_id", .build = build_add_id, .dtype = DTYPE_F32},
    PRODUCT(OP_MUL_MAT_ID_SUM, build_mul_mat_id_sum, F16, F16, 208),
    PRODUCT(OP_MUL_MAT_ID_SUM, build_mul_mat_id_sum, MXFP4, Q8, 160),
    PRODUCT(OP_MUL_MAT_ID_SUM, build_mul_mat_id_sum, F32, F32, 136),
    {.op = OP_MUL_MAT_ID_SUM,
     .name = "mul_mat_id_sum with a shared expert",
     .build = build_mul_mat_id_sum,
     .dtype = DTYPE_Q6_K,
     .precision = PRECISION_Q8,
     .k = 256,
     .attributes = {.width = 512, .group = 1}},
    {.op = OP_MUL_MAT_ID_SUM,
     .name = "mul_mat_id_sum with a shared expert in F16",
     .build = build_mul_mat_id_sum,
     .dtype = DTYPE_F16,
     .precision = PRECISION_F16,
     .k = 128,
     .attributes = {.width = 200}},
    {.op = OP_MUL_MAT_ID_SUM,
     .name = "mul_mat_id_sum with a shared expert of more segments",
     .build = build_mul_mat_id_sum,
     .dtype = DTYPE_Q8_0,
     .precision = PRECISION_Q8,
     .k = 96,
     .attributes = {.width = 256, .group = 1}},
    {.op = OP_MUL_MAT_ID_SUM,
     .name = "mul_mat_id_sum with a shared expert of fewer segments",
     .build = build_mul_mat_id_sum,
     .dtype = DTYPE_F32,
     .precision = PRECISION_F32,
     .k = 144,
     .attributes = {.width = 40}},
    {.op = OP_ADD_ID_SUM, .name = "add_id_sum", .build = build_add_id, .dtype = DTYPE_F16},
    {.op = OP_LORA, .name = "lora of F16", .build = build_lora, .dtype = DTYPE_F16, .k = 208},
    {.op = OP_LORA, .name = "lora of Q8_0", .build = build_lora, .dtype = DTYPE_Q8_0, .k = 96},
    {.op = OP_LORA, .name = "lora of experts", .build = build_lora_of_experts, .dtype = DTYPE_Q8_0, .k = 96},
    {.op = OP_SLICE,
     .name = "slice",
     .build = build_unary,
     .unit = 5,
     .attributes = {.head_dim = HEAD, .begin = 2, .width = 5}},
    {.op = OP_CONCAT, .name = "concat", .build = build_concat, .unit = HEAD + 4},
    {.op = OP_CONCAT,
     .name = "concat with a shared head",
     .build = build_concat,
     .unit = HEAD + 4,
     .attributes = {.group = 1}},
    {.op = OP_MATMUL_HEADS,
     .name = "matmul_heads F16",
     .build = build_matmul_heads,
     .unit = 12,
     .dtype = DTYPE_F16,
     .precision = PRECISION_F16,
     .k = 24},
    {.op = OP_MATMUL_HEADS,
     .name = "matmul_heads Q8_0",
     .build = build_matmul_heads,
     .unit = 12,
     .dtype = DTYPE_Q8_0,
     .precision = PRECISION_Q8,
     .k = 64},
    {.op = OP_POSITION_SCALE,
     .name = "position_scale",
     .build = build_unary,
     .attributes = {.temperature_scale = 0.3f, .temperature_length = 4}},
    {.op = OP_SIGMOID, .name = "sigmoid", .build = build_unary},
    {.op = OP_DIV, .name = "div", .build = build_binary},
    {.op = OP_ABS, .name = "abs", .build = build_unary},
    {.op = OP_EXP, .name = "exp", .build = build_unary},
    {.op = OP_LOG, .name = "log", .build = build_unary},
    {.op = OP_CEIL, .name = "ceil", .build = build_unary},
    {.op = OP_CLAMP, .name = "clamp", .build = build_unary, .attributes = {.low = -0.5f, .high = 2}},
    {.op = OP_POOL_1D,
     .name = "pool_1d, the largest of 6",
     .build = build_unary,
     .attributes = {.pool_max = true, .pool_kernel = 6, .pool_stride = 6}},
    {.op = OP_POOL_1D,
     .name = "pool_1d, means of 9",
     .build = build_unary,
     .attributes = {.pool_kernel = 9, .pool_stride = 9}},
    {.op = OP_POOL_1D,
     .name = "pool_1d, the largest of windows that overlap",
     .build = build_unary,
     .attributes = {.pool_max = true, .pool_kernel = 8, .pool_stride = 4}},
    {.op = OP_POOL_1D,
     .name = "pool_1d, means of windows that overlap and padding",
     .build = build_unary,
     .attributes = {.pool_kernel = 7, .pool_stride = 3, .pool_padding = 2}},
    {.op = OP_ADD_SCALED, .name = "add_scaled", .build = build_add_scaled, .attributes = {.factor = 1}},
    {.op = OP_ADD_SCALED, .name = "add_scaled without a scale", .build = build_add_scaled},
};
enum { N_OP_CASES = sizeof(op_cases) / sizeof(op_cases[0]) };

#endif
