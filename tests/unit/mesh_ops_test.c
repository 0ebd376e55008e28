// Every op on a mesh, with its sources placed in every way: replicated, cut between the devices, partial sums. What
// runs sharded and is gathered has the bits of what runs whole on one device, whatever the rule says is needed in
// between.
#include "cpu/device.h"
#include "mesh/mesh.h"
#include "mesh/shard.h"
#include "tensor/op.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "random_weights.h"

enum { N_TOKENS = 9, MAX_WEIGHTS = 40, N_EXPERT = 4, N_USED = 2, UNIT = 16 };

// How a source is placed: R, S (a value cut between the devices), P (a partial sum), 0, 1, 2 (a weight along that
// dimension).
struct scene {
    struct graph graph;
    uint8_t *bytes[MAX_WEIGHTS]; // by weight, in the file's layout
    const char *letters;         // of the op's sources, in the order in which they are made
    size_t n_made;
    struct tensor *partial_weight[MAX_SOURCES]; // of sources that are partial sums
    float size;                                 // of values: beyond F16 or not
};

// ---- making sources ----

static struct tensor *new_weight(struct scene *scene, enum dtype dtype, uint32_t n_dims, const size_t *ne)
{
    char name[32];
    snprintf(name, sizeof(name), "w%zu", scene->graph.n_weights);
    struct tensor *tensor = graph_weight(&scene->graph, name, dtype, n_dims, ne);
    if (tensor == NULL)
        fail_msg("%s", scene->graph.error.message);
    scene->bytes[tensor->index] = random_rows(dtype, tensor->ne[1] * tensor->ne[2], tensor->ne[0]);
    return tensor;
}

// Any values, [width, rows].
static struct tensor *any_value(struct scene *scene, size_t width)
{
    size_t ne[] = {width, N_TOKENS};
    struct tensor *x = graph_embed(&scene->graph, new_weight(scene, DTYPE_F32, 2, ne));
    return graph_scale(&scene->graph, x, scene->size);
}

static char next_letter(struct scene *scene)
{
    return scene->letters[scene->n_made++];
}

static struct tensor *source_value(struct scene *scene, size_t width)
{
    size_t index = scene->n_made;
    if (next_letter(scene) != 'P')
        return graph_scale(&scene->graph, any_value(scene, width), 1);
    size_t ne[] = {128, width};
    scene->partial_weight[index] = new_weight(scene, DTYPE_F32, 2, ne);
    return graph_matmul(&scene->graph, scene->partial_weight[index], any_value(scene, 128), 0);
}

static struct tensor *source_weight(struct scene *scene, enum dtype dtype, uint32_t n_dims, size_t a, size_t b,
                                    size_t c)
{
    size_t ne[] = {a, b, c};
    next_letter(scene);
    return new_weight(scene, dtype, n_dims, ne);
}

// Which experts, for sources that are pairs: every device has it whole.
static struct tensor *any_route(struct scene *scene)
{
    struct routing routing = {.n_expert = N_EXPERT, .n_used = N_USED, .normalize = true, .weight_scale = 1};
    return graph_route(&scene->graph, any_value(scene, N_EXPERT), NULL, &routing, 0);
}

static struct tensor *any_pairs(struct scene *scene, struct tensor *route, size_t width)
{
    size_t ne[] = {32, width, N_EXPERT};
    struct tensor *weight = new_weight(scene, DTYPE_F16, 3, ne);
    next_letter(scene);
    return graph_mul_mat_id(&scene->graph, weight, any_value(scene, 32), route, NULL, false);
}

// ---- cases ----

static enum dtype case_dtype; // of the products' weights

static struct tensor *apply(struct scene *scene, enum op op, const struct attributes *attributes,
                            struct tensor *const *sources)
{
    struct tensor *y = graph_apply(&scene->graph, op, attributes, sources);
    if (y == NULL)
        fail_msg("%s", scene->graph.error.message);
    return y;
}
#define SOURCES(...) ((struct tensor *[MAX_SOURCES]){__VA_ARGS__})

static struct tensor *make_embed(struct scene *scene)
{
    return graph_embed(&scene->graph, source_weight(scene, case_dtype, 2, 256, N_TOKENS, 1));
}

static struct tensor *make_norm(struct scene *scene, uint32_t head_dim)
{
    struct tensor *x = source_value(scene, 128);
    return graph_rms_norm(&scene->graph, x, source_weight(scene, DTYPE_F32, 1, head_dim == 0 ? 128 : head_dim, 1, 1),
                          1e-5f, head_dim);
}
static struct tensor *make_norm_row(struct scene *scene)
{
    return make_norm(scene, 0);
}
static struct tensor *make_norm_heads(struct scene *scene)
{
    return make_norm(scene, 16);
}

static struct tensor *make_matmul(struct scene *scene)
{
    struct tensor *weight = source_weight(scene, case_dtype, 2, 512, 48, 1);
    return graph_matmul(&scene->graph, weight, source_value(scene, 512), 0);
}
static struct tensor *make_matmul_by_head(struct scene *scene)
{
    struct tensor *weight = source_weight(scene, DTYPE_F16, 2, 9 * 24, 48, 1);
    return graph_matmul(&scene->graph, weight, source_value(scene, 9 * 24), 24);
}

static struct tensor *make_two(struct scene *scene, enum op op)
{
    struct tensor *a = source_value(scene, 128), *b = source_value(scene, 128);
    struct attributes attributes = {.activation = ACTIVATION_SILU};
    return apply(scene, op, &attributes, SOURCES(a, b));
}
static struct tensor *make_add(struct scene *scene)
{
    return make_two(scene, OP_ADD);
}
static struct tensor *make_mul(struct scene *scene)
{
    return make_two(scene, OP_MUL);
}
static struct tensor *make_div(struct scene *scene)
{
    return make_two(scene, OP_DIV);
}
static struct tensor *make_glu(struct scene *scene)
{
    return make_two(scene, OP_GLU);
}
static struct tensor *make_add_bias(struct scene *scene)
{
    struct tensor *a = source_value(scene, 128);
    return graph_add(&scene->graph, a, source_weight(scene, DTYPE_F32, 1, 128, 1, 1));
}

static struct tensor *make_one(struct scene *scene, enum op op)
{
    struct attributes attributes = {.factor = 0.3f,
                                    .low = -0.5f,
                                    .high = 0.25f,
                                    .head_dim = op == OP_SLICE || op == OP_POSITION_SCALE ? 16 : 0,
                                    .begin = 4,
                                    .width = 8,
                                    .temperature_scale = 0.1f,
                                    .temperature_length = 3,
                                    .pool_max = true,
                                    .pool_kernel = 16,
                                    .pool_stride = 16};
    return apply(scene, op, &attributes, SOURCES(source_value(scene, 256)));
}
#define MAKE_ONE(name, op)                                                                                             \
    static struct tensor *name(struct scene *scene)                                                                    \
    {                                                                                                                  \
        return make_one(scene, op);                                                                                    \
    }
MAKE_ONE(make_scale, OP_SCALE)
MAKE_ONE(make_select_rows, OP_SELECT_ROWS)
MAKE_ONE(make_slice, OP_SLICE)
MAKE_ONE(make_position_scale, OP_POSITION_SCALE)
MAKE_ONE(make_sigmoid, OP_SIGMOID)
MAKE_ONE(make_abs, OP_ABS)
MAKE_ONE(make_exp, OP_EXP)
MAKE_ONE(make_log, OP_LOG)
MAKE_ONE(make_ceil, OP_CEIL)
MAKE_ONE(make_clamp, OP_CLAMP)
MAKE_ONE(make_pool, OP_POOL_1D)

// Windows that overlap need the whole row.
static struct tensor *make_pool_over(struct scene *scene)
{
    struct attributes attributes = {.pool_kernel = 5, .pool_stride = 2, .pool_padding = 1};
    return apply(scene, OP_POOL_1D, &attributes, SOURCES(source_value(scene, 256)));
}

// The exponent of each segment's largest magnitude by primitives: a part of the row gives a part of them.
static struct tensor *make_range_exponents(struct scene *scene)
{
    struct attributes largest = {.pool_max = true, .pool_kernel = 32, .pool_stride = 32}, half = {.factor = 1.442695f};
    struct tensor *x = graph_unary(&scene->graph, OP_ABS, source_value(scene, 256));
    x = apply(scene, OP_POOL_1D, &largest, SOURCES(x));
    x = graph_unary(&scene->graph, OP_LOG, x);
    return graph_unary(&scene->graph, OP_CEIL, apply(scene, OP_SCALE, &half, SOURCES(x)));
}

static struct tensor *make_rope(struct scene *scene)
{
    return graph_rope(&scene->graph, source_value(scene, 128), 16, 8, 0, true);
}

static struct tensor *make_concat(struct scene *scene, bool shared)
{
    struct tensor *a = source_value(scene, 128), *b = source_value(scene, shared ? 8 : 64);
    return graph_concat(&scene->graph, a, 16, b, 8);
}
static struct tensor *make_concat_each(struct scene *scene)
{
    return make_concat(scene, false);
}
static struct tensor *make_concat_shared(struct scene *scene)
{
    return make_concat(scene, true);
}

static struct tensor *make_matmul_heads(struct scene *scene)
{
    struct tensor *weight = source_weight(scene, case_dtype, 3, 256, 24, 8);
    return graph_matmul_heads(&scene->graph, weight, source_value(scene, 8 * 256));
}

static struct tensor *attention(struct scene *scene, uint32_t n_head, uint32_t n_kv, bool v_in_k, bool sinks)
{
    struct kv_layer layer = {.n_head = n_kv, .k_dim = 32, .v_dim = 16, .v_in_k = v_in_k};
    struct attributes attributes = {.layer = graph_kv_layer(&scene->graph, layer),
                                    .n_head = n_head,
                                    .n_kv_head = n_kv,
                                    .head_dim = 32,
                                    .v_dim = 16,
                                    .v_in_k = v_in_k,
                                    .score_scale = 0.2f};
    struct tensor *q = source_value(scene, 32 * (size_t)n_head), *k = source_value(scene, 32 * (size_t)n_kv);
    struct tensor *v = v_in_k ? NULL : source_value(scene, 16 * (size_t)n_kv);
    struct tensor *s = sinks ? source_weight(scene, DTYPE_F32, 1, n_head, 1, 1) : NULL;
    return graph_attention(&scene->graph, q, k, v, s, &attributes);
}
static struct tensor *make_attention(struct scene *scene)
{
    return attention(scene, 9, 3, false, true);
}
static struct tensor *make_attention_latent(struct scene *scene)
{
    return attention(scene, 6, 1, true, false);
}

static struct tensor *make_route(struct scene *scene)
{
    struct routing routing = {.n_expert = N_EXPERT, .n_used = N_USED, .weight_scale = 1};
    struct tensor *logits = source_value(scene, N_EXPERT);
    return graph_route(&scene->graph, logits, source_weight(scene, DTYPE_F32, 1, N_EXPERT, 1, 1), &routing, 0);
}

static struct tensor *make_mul_mat_id(struct scene *scene)
{
    struct tensor *weight = source_weight(scene, case_dtype, 3, 256, 64, N_EXPERT);
    struct tensor *x = source_value(scene, 256), *route = any_route(scene);
    return graph_mul_mat_id(&scene->graph, weight, x, route, source_weight(scene, DTYPE_F32, 1, N_EXPERT, 1, 1), true);
}

static struct tensor *make_add_id(struct scene *scene)
{
    struct tensor *route = any_route(scene), *x = any_pairs(scene, route, 64);
    return graph_add_id(&scene->graph, x, source_weight(scene, DTYPE_F32, 2, 64, N_EXPERT, 1), route);
}

static struct tensor *make_mul_mat_id_sum(struct scene *scene)
{
    struct tensor *weight = source_weight(scene, case_dtype, 3, 512, 48, N_EXPERT), *route = any_route(scene);
    struct tensor *x = any_pairs(scene, route, 512), *scale = source_weight(scene, DTYPE_F32, 1, N_EXPERT, 1, 1);
    struct shared_expert shared = {.weight = source_weight(scene, case_dtype, 2, 256, 48, 1)};
    shared.hidden = source_value(scene, 256);
    shared.gate = source_value(scene, 1);
    return graph_mul_mat_id_sum(&scene->graph, weight, x, route, scale, &shared, false);
}

static struct tensor *make_add_id_sum(struct scene *scene)
{
    struct tensor *y = source_value(scene, 64), *bias = source_weight(scene, DTYPE_F32, 2, 64, N_EXPERT, 1);
    return graph_add_id_sum(&scene->graph, y, bias, any_route(scene), false);
}

static struct tensor *make_add_scaled(struct scene *scene)
{
    struct tensor *y = source_value(scene, 64), *x = source_value(scene, 64);
    return graph_add_scaled(&scene->graph, y, x, source_value(scene, 1));
}

static const struct op_case {
    enum op op;
    struct tensor *(*make)(struct scene *scene);
    // Each source's placements, separated by spaces; for optional ones too. In the order in which they are made.
    const char *placements;
    size_t unit;   // of the result: where it may be cut
    bool products; // in every dtype
} cases[] = {
    {OP_EMBED, make_embed, "R01", 16, true},
    {OP_RMS_NORM, make_norm_row, "RSP R0", 16, false},
    {OP_RMS_NORM, make_norm_heads, "RSP R0", 16, false},
    {OP_MATMUL, make_matmul, "R01 RSP", 16, true},
    {OP_MATMUL, make_matmul_by_head, "R01 RSP", 16, false},
    {OP_ADD, make_add, "RSP RSP", 16, false},
    {OP_ADD, make_add_bias, "RSP R0", 16, false},
    {OP_MUL, make_mul, "RSP RSP", 16, false},
    {OP_DIV, make_div, "RSP RSP", 16, false},
    {OP_GLU, make_glu, "RSP RSP", 16, false},
    {OP_SCALE, make_scale, "RSP", 16, false},
    {OP_SELECT_ROWS, make_select_rows, "RSP", 16, false},
    {OP_SLICE, make_slice, "RSP", 8, false},
    {OP_POSITION_SCALE, make_position_scale, "RSP", 16, false},
    {OP_SIGMOID, make_sigmoid, "RSP", 16, false},
    {OP_ABS, make_abs, "RSP", 16, false},
    {OP_EXP, make_exp, "RSP", 16, false},
    {OP_LOG, make_log, "RSP", 16, false},
    {OP_CEIL, make_ceil, "RSP", 16, false},
    {OP_CLAMP, make_clamp, "RSP", 16, false},
    {OP_POOL_1D, make_pool, "RSP", 1, false},
    {OP_POOL_1D, make_pool_over, "RSP", 1, false},
    {OP_ROPE, make_rope, "RSP", 16, false},
    {OP_CONCAT, make_concat_each, "RSP RSP", 24, false},
    {OP_CONCAT, make_concat_shared, "RSP RSP", 24, false},
    {OP_MATMUL_HEADS, make_matmul_heads, "R012 RSP", 24, true},
    {OP_ATTENTION, make_attention, "RSP RSP RSP R0", 16, false},
    {OP_ATTENTION, make_attention_latent, "RSP RSP", 16, false},
    {OP_ROUTE, make_route, "RSP R0", 1, false},
    {OP_MUL_MAT_ID, make_mul_mat_id, "R012 RSP R0", 16, true},
    {OP_ADD_ID, make_add_id, "RS R01", 16, false},
    {OP_MUL_MAT_ID_SUM, make_mul_mat_id_sum, "R012 RS R0 R01 RSP RSP", 16, true},
    {OP_ADD_ID_SUM, make_add_id_sum, "RSP R01", 16, false},
    {OP_ADD_SCALED, make_add_scaled, "RSP RSP RSP", 16, false},
};
enum { N_CASES = sizeof(cases) / sizeof(cases[0]) };

// ---- running ----

static enum status read_bytes(void *user, const struct tensor *tensor, uint64_t offset, void *bytes, size_t size,
                              struct error *error)
{
    const struct scene *scene = user;
    (void)error;
    memcpy(bytes, scene->bytes[atoi(tensor->name + 1)] + offset, size);
    return STATUS_OK;
}

struct kept {
    float *rows;
    size_t width;
};

static int keep(void *user, size_t selected, const float *logits)
{
    const struct kept *kept = user;
    memcpy(kept->rows + selected * kept->width, logits, kept->width * sizeof(float));
    return 0;
}

struct one_device {
    struct scene *scene;
    struct graph *graph;
    struct transport *transport;
    uint32_t rank;
    struct kept kept;
    struct error error;
};

static void *run_device(void *user)
{
    struct one_device *one = user;
    struct device *device = NULL;
    struct weights *weights = NULL;
    struct plan *plan = NULL;
    struct plan_params params = {
        .n_rows = N_TOKENS, .n_logits = 4, .kv = KV_DTYPE_F32, .transport = one->transport, .rank = one->rank};
    struct weight_reader reader = {.read = read_bytes, .user = one->scene};
    size_t n_pages[MAX_KV_KINDS] = {1, 1, 1, 1};
    float angles[N_TOKENS * 8];
    for (int i = 0; i < N_TOKENS * 8; i++)
        angles[i] = (float)(i % 7) * 0.1f;
    static const uint32_t page[1] = {0};
    const uint32_t *pages[MAX_KV_KINDS] = {page, page, page, page};
    struct row rows[N_TOKENS];
    uint32_t selected[N_TOKENS];
    for (uint32_t i = 0; i < N_TOKENS; i++) {
        rows[i] = (struct row){.token = (int32_t)(i * 5 % N_TOKENS), .position = i};
        selected[i] = i;
    }
    struct run run = {.rows = rows,
                      .n_rows = N_TOKENS,
                      .selected = selected,
                      .n_selected = N_TOKENS,
                      .pages = pages,
                      .ropes = {angles},
                      .on_logits = one->rank == 0 ? keep : NULL,
                      .user = &one->kept};
    const struct cpu_device_params device_params = {.pool.n_threads = 1 + one->rank % 2};
    enum status status = cpu_device_create(&device_params, &device, &one->error);
    if (status == STATUS_OK)
        status = device->ops->pack(device, one->graph, &reader, &weights, &one->error);
    if (status == STATUS_OK)
        status = device->ops->plan(device, one->graph, weights, &params, &plan, &one->error);
    if (status == STATUS_OK)
        status = device->ops->kv_allocate(plan, n_pages, &one->error);
    if (status == STATUS_OK)
        status = device->ops->run(plan, &run, &one->error);
    one->error.status = status;
    if (device != NULL) {
        device->ops->free_plan(plan);
        device->ops->free_weights(weights);
        device->ops->destroy(device);
    }
    return NULL;
}

// ---- placing ----

static struct part cut(const struct sharding *sharding, size_t n, size_t unit, uint32_t dim)
{
    struct part part = {.placement = placement_shard(dim)};
    for (uint32_t d = 0; d < sharding->split.n_devices; d++) {
        const uint8_t *eighth = &sharding->split.eighth[d];
        part.ranges[d] = (struct row_range){eighth[0] == 8 ? n : n / unit * eighth[0] / 8 * unit,
                                            eighth[1] == 8 ? n : n / unit * eighth[1] / 8 * unit};
    }
    return part;
}

static struct part along_k(const struct sharding *sharding, const struct tensor *weight, uint32_t unit)
{
    struct part part = {.placement = placement_shard(0)};
    struct segments segments;
    segments_of_product(&segments, weight->dtype, weight->ne[0], unit);
    for (uint32_t d = 0; d < sharding->split.n_devices; d++) {
        part.leaves[d] = split_leaves(&sharding->split, d, segments.n);
        part.ranges[d] = (struct row_range){(size_t)segments.border[part.leaves[d].first] * segments.grain,
                                            (size_t)segments.border[part.leaves[d].end] * segments.grain};
        if (part.ranges[d].end > weight->ne[0])
            part.ranges[d].end = weight->ne[0];
    }
    return part;
}

static void set_partial(struct sharding *sharding, struct tensor *weight, uint32_t unit, const struct tensor *value)
{
    sharding->weights[weight->index] = along_k(sharding, weight, unit);
    sharding->values[value->index] = sharding->weights[weight->index];
    sharding->values[value->index].placement = placement_partial();
}

// Gives the sources their letters' placements and the result what the rule makes of them.
static void place_case(const struct op_case *c, const struct scene *scene, const struct node *node,
                       struct sharding *sharding)
{
    struct placement have[MAX_SOURCES], need[MAX_SOURCES], result;
    char letters[MAX_SOURCES] = {0};
    size_t at = 0;
    for (uint32_t i = 0; i < node->n_sources; i++) {
        const struct tensor *source = node->sources[i];
        bool route = source != NULL && source->producer != NULL && source->producer->op == OP_ROUTE;
        letters[i] = source == NULL || route ? 'R' : scene->letters[at++];
        have[i] = letters[i] == 'R'   ? placement_replicate()
                  : letters[i] == 'P' ? placement_partial()
                                      : placement_shard(letters[i] == 'S' ? 0 : (uint32_t)(letters[i] - '0'));
    }
    op_place(op_get(node->op), node, have, need, &result);
    struct part *made = &sharding->values[node->result->index];
    if (result.kind == PLACED_SHARD) {
        *made = cut(sharding, node->result->ne[0], c->unit, 0);
    } else if (result.kind == PLACED_PARTIAL && node->op == OP_EMBED) {
        sharding->weights[node->sources[0]->index] = cut(sharding, node->sources[0]->ne[1], 1, 1);
        *made = sharding->weights[node->sources[0]->index];
        made->placement = placement_partial();
        made->pick = true;
    } else if (result.kind == PLACED_PARTIAL) {
        set_partial(sharding, node->sources[0], node->attributes.segment_unit, node->result);
        if (node->op == OP_MUL_MAT_ID_SUM) // the shared expert is cut with the experts
            sharding->weights[node->sources[4]->index] = along_k(sharding, node->sources[4], 0);
    }
    at = 0;
    for (uint32_t i = 0; i < node->n_sources; i++) {
        const struct tensor *source = node->sources[i];
        bool route = source != NULL && source->producer != NULL && source->producer->op == OP_ROUTE;
        if (source == NULL || route)
            continue;
        if (scene->partial_weight[at] != NULL)
            set_partial(sharding, scene->partial_weight[at], 0, source);
        at++;
        if (source->rows == ROWS_NONE) {
            struct part part = sharding_need(sharding, node, i);
            if (part.placement.kind == PLACED_SHARD && sharding->weights[source->index].placement.kind != PLACED_SHARD)
                sharding->weights[source->index] = part;
        } else if (letters[i] == 'S') {
            struct part part = sharding_need(sharding, node, i);
            if (part.placement.kind != PLACED_SHARD)
                part = cut(sharding, source->ne[0], source->ne[0] < UNIT ? 1 : UNIT, 0);
            sharding->values[source->index] = part;
            if (source->producer->op == OP_MUL_MAT_ID) { // pairs are cut where they are made
                struct part *weight = &sharding->weights[source->producer->sources[0]->index];
                *weight = part;
                weight->placement = placement_shard(1);
            }
        }
    }
}

// The primitives of the range scale, in a row, from a value that is cut between segments on: what each makes of its
// part.
static void place_chain(const struct node *node, struct sharding *sharding)
{
    for (const struct tensor *value = node->result; value->producer->op != OP_EMBED;
         value = value->producer->sources[0])
        sharding->values[value->index] = cut(sharding, value->ne[0], value->ne[0] / 8, 0);
}

static size_t count_collectives(const struct graph *graph)
{
    size_t n = 0;
    for (size_t i = 0; i < graph->n_nodes; i++)
        n += graph->nodes[i]->attributes.collective != NULL;
    return n;
}

static const struct op_case range_exponents = {OP_CEIL, make_range_exponents, "S", 1, false};

static void run_mesh(const struct op_case *c, struct scene *scene, const struct node *node,
                     const struct mesh_split *split, struct kept *kept)
{
    struct sharding sharding;
    struct error error = {0};
    struct graph locals[MAX_DEVICES];
    struct one_device devices[MAX_DEVICES] = {{0}};
    pthread_t threads[MAX_DEVICES];
    struct transport *transport = NULL;
    if (sharding_init(&scene->graph, split, &sharding, &error) != STATUS_OK ||
        transport_threads_create(split->n_devices, true, &transport, &error) != STATUS_OK)
        fail_msg("%s", error.message);
    if (c == &range_exponents)
        place_chain(node, &sharding);
    else
        place_case(c, scene, node, &sharding);
    for (uint32_t d = 0; d < split->n_devices; d++) {
        graph_init(&locals[d]);
        if (shard_graph(&sharding, d, &locals[d], &error) != STATUS_OK)
            fail_msg("%s %s, device %u of %u: %s", op_get(c->op)->name, scene->letters, d, split->n_devices,
                     error.message);
        if (c == &range_exponents) // of the result; none for the maxima
            assert_int_equal(count_collectives(&locals[d]), 1);
        devices[d] =
            (struct one_device){.scene = scene, .graph = &locals[d], .transport = transport, .rank = d, .kept = *kept};
        assert_int_equal(pthread_create(&threads[d], NULL, run_device, &devices[d]), 0);
    }
    for (uint32_t d = 0; d < split->n_devices; d++) {
        pthread_join(threads[d], NULL);
        if (devices[d].error.status != STATUS_OK)
            fail_msg("%s %s, device %u of %u: %s", op_get(c->op)->name, scene->letters, d, split->n_devices,
                     devices[d].error.message);
        graph_free(&locals[d]);
    }
    transport->ops->destroy(transport);
    sharding_free(&sharding);
}

// ---- all of it ----

static const struct mesh_split splits[] = {
    {2, {0, 4, 8}},
    {3, {0, 3, 3, 8}}, // one has nothing
    {8, {0, 1, 2, 3, 4, 5, 6, 7, 8}},
};

static void check_letters(const struct op_case *c, const char *letters)
{
    struct scene scene = {.letters = letters, .size = c->op == OP_MATMUL ? 3e5f : 1};
    random_state = 11;
    graph_init(&scene.graph);
    struct tensor *y = c->make(&scene);
    if (y == NULL)
        fail_msg("%s: %s", op_get(c->op)->name, scene.graph.error.message);
    const struct node *node = y->producer;
    assert_int_equal(node->op, c->op);
    if (y->rows == ROWS_PAIRS) {
        size_t ne[] = {y->ne[0], 32, N_EXPERT};
        y = graph_mul_mat_id_sum(&scene.graph, new_weight(&scene, DTYPE_F32, 3, ne), y, node->sources[2], NULL, NULL,
                                 false);
    }
    if (y->rows == ROWS_BATCH)
        y = graph_select_rows(&scene.graph, y);
    scene.graph.output = graph_scale(&scene.graph, y, 1);
    if (scene.graph.error.status != STATUS_OK)
        fail_msg("%s: %s", op_get(c->op)->name, scene.graph.error.message);
    size_t n = scene.graph.output->ne[0], size = N_TOKENS * n * sizeof(float);
    struct one_device whole = {
        .scene = &scene, .graph = &scene.graph, .kept = {.rows = calloc(N_TOKENS * n, sizeof(float)), .width = n}};
    run_device(&whole);
    if (whole.error.status != STATUS_OK)
        fail_msg("%s %s: %s", op_get(c->op)->name, letters, whole.error.message);
    struct kept sharded = {.rows = calloc(N_TOKENS * n, sizeof(float)), .width = n};
    for (size_t s = 0; s < sizeof(splits) / sizeof(splits[0]); s++) {
        memset(sharded.rows, 0xff, size);
        run_mesh(c, &scene, node, &splits[s], &sharded);
        if (memcmp(sharded.rows, whole.kept.rows, size) != 0)
            fail_msg("%s %s (%s) on %u devices has other bits", op_get(c->op)->name, letters,
                     dtype_get(case_dtype)->name, splits[s].n_devices);
    }
    free(sharded.rows);
    free(whole.kept.rows);
    for (size_t i = 0; i < MAX_WEIGHTS; i++)
        free(scene.bytes[i]);
    graph_free(&scene.graph);
}

// All letters of the sources from the i-th on; returns how many cases there were.
static size_t check_all(const struct op_case *c, const char *choices, char *letters, size_t n)
{
    if (*choices == '\0') {
        letters[n] = '\0';
        check_letters(c, letters);
        return 1;
    }
    size_t n_cases = 0, length = strcspn(choices, " ");
    for (size_t i = 0; i < length; i++) {
        letters[n] = choices[i];
        n_cases += check_all(c, choices + length + (choices[length] == ' '), letters, n + 1);
    }
    return n_cases;
}

static void test_every_op(void **state)
{
    (void)state;
    static const enum dtype products[] = {DTYPE_F16,  DTYPE_Q4_K, DTYPE_F32,  DTYPE_BF16,
                                          DTYPE_Q8_0, DTYPE_Q6_K, DTYPE_MXFP4};
    bool seen[OP_COUNT] = {[OP_ALL_REDUCE] = true,
                           [OP_ALL_GATHER] = true, // made by the pass, in all cases
                           [OP_LORA] = true,
                           [OP_LORA_HIDDEN] = true}; // tests/golden/lora_test.c
    size_t n = 0;
    for (size_t i = 0; i < N_CASES; i++) {
        size_t n_dtypes = cases[i].products ? sizeof(products) / sizeof(products[0]) : 1;
        for (size_t t = 0; t < n_dtypes; t++) {
            char letters[MAX_SOURCES + 1];
            case_dtype = products[t];
            if (t > 1 && cases[i].op == OP_MUL_MAT_ID_SUM) // the most placements: two dtypes say it
                break;
            n += check_all(&cases[i], cases[i].placements, letters, 0);
        }
        seen[cases[i].op] = true;
    }
    for (int op = 0; op < OP_COUNT; op++)
        assert_true(seen[op]);
    print_message("%zu placements of %zu cases on 2, 3 and 8 devices\n", n, (size_t)N_CASES);
}

// Each segment's largest magnitude lives where the segment lives: no device needs another's.
static void test_range_exponents(void **state)
{
    (void)state;
    check_letters(&range_exponents, "S");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_op), cmocka_unit_test(test_range_exponents)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
