// Expert layers on the CPU device against a model of the contract (docs/numerics.md) that goes through them one row and
// one expert at a time: the same bits for all formats, activations, biases, scales and shared experts, whatever the
// batch, the threads and the kernels. Also what must fail: an expert that is not in memory, a router of NaN.
#include "base/checked.h"
#include "cpu/plan.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "small_graph.h"

enum { N_TOKENS = 37, MAX_WIDTH = 512, MAX_USED = 8 };

struct setting {
    const char *name;
    enum dtype dtype, shared_dtype;
    size_t n_embd, n_ff, n_ff_shared; // n_ff_shared 0: no shared expert
    struct routing routing;
    enum activation activation;
    bool scales, biases, shared_gate, before, one_projection;
    bool apart; // the products have another reader, so that no gated unit is made where they are
    float size; // of the up projections: how far the hidden units go
};

static const struct setting settings[] = {
    {.name = "mixtral", .dtype = DTYPE_Q4_0, .n_embd = 64, .n_ff = 96, .routing = {.n_expert = 8, .n_used = 2}},
    {.name = "overflow",
     .dtype = DTYPE_F16,
     .n_embd = 48,
     .n_ff = 288,
     .routing = {.n_expert = 5, .n_used = 3},
     .size = 0x1p12f},
    {.name = "shared",
     .dtype = DTYPE_Q8_0,
     .shared_dtype = DTYPE_Q4_K,
     .n_embd = 256,
     .n_ff = 256,
     .n_ff_shared = 512,
     .routing = {.n_expert = 16, .n_used = 4, .normalize = true, .weight_scale = 2.5f},
     .shared_gate = true},
    {.name = "few segments",
     .dtype = DTYPE_Q8_0,
     .shared_dtype = DTYPE_Q8_0,
     .n_embd = 64,
     .n_ff = 64,
     .n_ff_shared = 256,
     .routing = {.n_expert = 4, .n_used = 1, .gating = GATING_SIGMOID},
     .activation = ACTIVATION_GELU},
    {.name = "gpt-oss",
     .dtype = DTYPE_MXFP4,
     .n_embd = 64,
     .n_ff = 160,
     .routing = {.n_expert = 8, .n_used = 4, .gating = GATING_SOFTMAX_SELECTED},
     .activation = ACTIVATION_SILU_CLAMPED,
     .biases = true},
    {.name = "scaled",
     .dtype = DTYPE_F16,
     .shared_dtype = DTYPE_F16,
     .n_embd = 80,
     .n_ff = 176,
     .n_ff_shared = 176,
     .routing = {.n_expert = 6, .n_used = 6},
     .scales = true,
     .biases = true,
     .size = 0x1p12f},
    {.name = "before",
     .dtype = DTYPE_F32,
     .n_embd = 40,
     .n_ff = 33,
     .routing = {.n_expert = 7, .n_used = 2},
     .activation = ACTIVATION_RELU,
     .before = true},
    {.name = "squared",
     .dtype = DTYPE_BF16,
     .n_embd = 40,
     .n_ff = 72,
     .routing = {.n_expert = 3, .n_used = 2},
     .activation = ACTIVATION_RELU,
     .one_projection = true},
    {.name = "apart",
     .dtype = DTYPE_Q8_0,
     .n_embd = 64,
     .n_ff = 96,
     .routing = {.n_expert = 6, .n_used = 3},
     .apart = true},
};
enum { N_SETTINGS = sizeof(settings) / sizeof(settings[0]) };

// ---- a layer with its weights' bytes ----

struct layer {
    const struct setting *setting;
    struct small_graph small;
    struct tensor *table, *router, *gate, *up, *down, *scale[3], *bias[3], *shared[3], *shared_gate;
    const int32_t *slots;
};

static struct tensor *weight(struct layer *layer, const char *name, enum dtype dtype, uint32_t n_dims, size_t k,
                             size_t n, size_t count)
{
    return small_graph_weight(&layer->small, name, dtype, k, n_dims < 2 ? 0 : n, n_dims < 3 ? 0 : count);
}

// Multiplies what a plain weight holds.
static void enlarge(const struct layer *layer, const struct tensor *tensor, float size)
{
    size_t n = tensor->ne[0] * tensor->ne[1] * tensor->ne[2];
    uint16_t *halves = (uint16_t *)(void *)layer->small.bytes[tensor->index];
    for (size_t i = 0; size != 0 && i < n; i++)
        halves[i] = float_to_half(half_to_float(halves[i]) * size);
}

static void make_weights(struct layer *layer)
{
    const struct setting *s = layer->setting;
    size_t n_expert = s->routing.n_expert;
    static const char *const names[] = {"gate", "up", "down"};
    enum dtype bias = s->dtype == DTYPE_F16 ? DTYPE_F16 : DTYPE_F32;
    layer->table = weight(layer, "table", DTYPE_F32, 2, s->n_embd, N_TOKENS, 1);
    layer->router = weight(layer, "router", DTYPE_F32, 2, s->n_embd, n_expert, 1);
    layer->gate = weight(layer, "gate", s->dtype, 3, s->n_embd, s->n_ff, n_expert);
    layer->up = weight(layer, "up", s->dtype, 3, s->n_embd, s->n_ff, n_expert);
    layer->down = weight(layer, "down", s->dtype, 3, s->n_ff, s->n_embd, n_expert);
    enlarge(layer, layer->up, s->size);
    for (int i = 0; i < 3; i++) {
        char name[32];
        snprintf(name, sizeof(name), "%s.scale", names[i]);
        if (s->scales)
            layer->scale[i] = weight(layer, name, DTYPE_F32, 1, n_expert, 1, 1);
        snprintf(name, sizeof(name), "%s.bias", names[i]);
        if (s->biases)
            layer->bias[i] = weight(layer, name, bias, 2, i < 2 ? s->n_ff : s->n_embd, n_expert, 1);
        snprintf(name, sizeof(name), "%s.shared", names[i]);
        if (s->n_ff_shared != 0)
            layer->shared[i] = weight(layer, name, s->shared_dtype, 2, i < 2 ? s->n_embd : s->n_ff_shared,
                                      i < 2 ? s->n_ff_shared : s->n_embd, 1);
    }
    if (s->shared_gate)
        layer->shared_gate = weight(layer, "gate.gate", DTYPE_F32, 2, s->n_embd, 1, 1);
}

static struct tensor *glu(struct layer *layer, struct tensor *gate, struct tensor *up)
{
    struct attributes a = {.activation = layer->setting->activation, .limit = 0.5f, .alpha = 1.702f};
    return graph_apply(&layer->small.graph, OP_GLU, &a, (struct tensor *[]){gate, up});
}

static struct tensor *projection(struct layer *layer, int i, struct tensor *weights, struct tensor *x,
                                 struct tensor *route)
{
    struct tensor *y =
        graph_mul_mat_id(&layer->small.graph, weights, x, route, layer->scale[i], layer->setting->before);
    if (y != NULL && layer->slots != NULL)
        y->producer->attributes.slots = layer->slots;
    return y;
}

static void layer_open(struct layer *layer, const struct setting *setting, const int32_t *slots)
{
    *layer = (struct layer){.setting = setting, .slots = slots};
    struct graph *graph = &layer->small.graph;
    small_graph_open(&layer->small, N_TOKENS);
    make_weights(layer);
    struct tensor *x = graph_embed(graph, layer->table);
    struct tensor *logits = graph_matmul(graph, layer->router, x, 0);
    struct shared_expert shared = {.weight = layer->shared[2]};
    if (setting->shared_gate)
        shared.gate = graph_unary(graph, OP_SIGMOID, graph_matmul(graph, layer->shared_gate, x, 0));
    if (setting->n_ff_shared != 0) {
        struct tensor *gate = graph_matmul(graph, layer->shared[0], x, 0);
        shared.hidden = glu(layer, gate, graph_matmul(graph, layer->shared[1], x, 0));
    }
    struct tensor *route = graph_route(graph, logits, NULL, &setting->routing, 7);
    struct tensor *gate = projection(layer, 0, layer->gate, x, route), *up = gate;
    if (!setting->one_projection)
        up = projection(layer, 1, layer->up, x, route);
    if (setting->biases) {
        gate = graph_add_id(graph, gate, layer->bias[0], route);
        up = graph_add_id(graph, up, layer->bias[1], route);
    }
    struct tensor *hidden = glu(layer, gate, up);
    if (setting->apart)
        hidden = graph_add(graph, hidden, graph_scale(graph, gate, 0));
    struct tensor *y = graph_mul_mat_id_sum(graph, layer->down, hidden, route, layer->scale[2],
                                            shared.weight == NULL ? NULL : &shared, setting->before);
    if (y != NULL && slots != NULL)
        y->producer->attributes.slots = slots;
    if (setting->biases)
        y = graph_add_id_sum(graph, y, layer->bias[2], route, setting->before);
    graph->output = graph_select_rows(graph, y);
    if (graph->error.status != STATUS_OK)
        fail_msg("%s: %s", setting->name, graph->error.message);
}

static void layer_close(struct layer *layer)
{
    small_graph_close(&layer->small);
}

// ---- the model of the contract ----

struct reference {
    const struct layer *layer;
    const struct kernels *kernels;
    const struct weights *weights;
};

static enum precision precision_of(enum dtype dtype)
{
    return dtype == DTYPE_F16                          ? PRECISION_F16
           : dtype == DTYPE_F32 || dtype == DTYPE_BF16 ? PRECISION_F32
                                                       : PRECISION_Q8;
}

// y[n] = matrix · x; or, with parts, the sums of each segment [segment][n rounded up to 16].
static void product(const struct reference *reference, const struct tensor *tensor, size_t index, const float *x,
                    float *y, bool parts)
{
    const struct packed matrix = cpu_weight_matrix(&reference->weights->items[tensor->index], index);
    _Alignas(64) uint8_t source[MAX_WIDTH * 4 + 64];
    float *values = (float *)(void *)source, panel[MAX_SEGMENTS * PANEL_ROWS];
    enum precision precision = precision_of(tensor->dtype);
    size_t width = round_up(matrix.n_rows, 16);
    if (precision == PRECISION_Q8) {
        reference->kernels->quantize_q8(x, matrix.k, source);
    } else if (precision == PRECISION_F16) {
        reference->kernels->round_f16(x, matrix.k, &matrix.segments, values);
    } else {
        memcpy(values, x, matrix.k * sizeof(float));
        for (int s = 0; s < MAX_SEGMENTS; s++)
            values[f32_row_scales(matrix.k) + (size_t)s] = 1.0f;
    }
    for (size_t p = 0; p < matrix.n_panels; p++) {
        if (precision == PRECISION_Q8)
            reference->kernels->matvec_q8[matrix.format->kind](&matrix, p, source, panel, parts ? PANEL_ROWS : 0);
        else
            reference->kernels->matvec_f32[matrix.format->kind](&matrix, p, values, panel, parts ? PANEL_ROWS : 0);
        for (uint32_t s = 0; s < (parts ? matrix.segments.n : 1); s++)
            memcpy(y + s * width + p * PANEL_ROWS, panel + s * PANEL_ROWS, PANEL_ROWS * sizeof(float));
    }
}

static void activate(const struct reference *reference, const float *gate, const float *up, size_t n, float *h)
{
    struct attributes a = {.activation = reference->layer->setting->activation, .limit = 0.5f, .alpha = 1.702f};
    cpu_glu(reference->kernels, &a, gate, up, n, h);
}

static const float *vector(const struct reference *reference, const struct tensor *tensor, size_t index)
{
    return cpu_weight_vector(&reference->weights->items[tensor->index], index);
}

// Gate or up of one expert: scale, weight where it comes before, bias.
static void project(const struct reference *reference, int i, size_t expert, float weight, const float *x, float *y)
{
    const struct layer *layer = reference->layer;
    const struct setting *s = layer->setting;
    product(reference, i == 0 ? layer->gate : layer->up, expert, x, y, false);
    for (size_t j = 0; j < s->n_ff; j++) {
        if (s->scales)
            y[j] *= vector(reference, layer->scale[i], 0)[expert];
        if (s->before)
            y[j] *= weight;
        if (s->biases)
            y[j] += vector(reference, layer->bias[i], expert)[j];
    }
}

static float largest_hidden; // of all tokens of the setting: so that a test of overflow is one

// The layer for one token, as docs/numerics.md says: segment by segment, experts in ascending order.
static void run_token(const struct reference *reference, size_t token, float *y)
{
    const struct layer *layer = reference->layer;
    const struct setting *s = layer->setting;
    static float gate[MAX_WIDTH], up[MAX_WIDTH], h[MAX_WIDTH], parts[MAX_SEGMENTS * MAX_WIDTH];
    static float sums[MAX_SEGMENTS * MAX_WIDTH], biases[MAX_WIDTH];
    float logits[64], scratch[256], route[2 * MAX_USED];
    const float *x = (const float *)(const void *)layer->small.bytes[layer->table->index] + token * s->n_embd;
    size_t width = round_up(s->n_embd, 16);
    const struct packed *down = &reference->weights->items[layer->down->index].packed;
    uint32_t n_segments = down->segments.n, n_used = s->routing.n_used;
    product(reference, layer->router, 0, x, logits, false);
    reference->kernels->route(&s->routing, logits, NULL, scratch, route);
    memset(sums, 0, sizeof(sums));
    memset(biases, 0, sizeof(biases));
    for (uint32_t i = 0; i < n_used; i++) {
        size_t expert = (size_t)route[i];
        float weight = route[n_used + i], factor = s->before ? 1.0f : weight;
        if (i > 0)
            assert_true(route[i] > route[i - 1]);
        project(reference, 0, expert, weight, x, gate);
        if (!s->one_projection)
            project(reference, 1, expert, weight, x, up);
        activate(reference, gate, s->one_projection ? gate : up, s->n_ff, h);
        for (size_t j = 0; j < s->n_ff; j++)
            largest_hidden = fabsf(h[j]) > largest_hidden ? fabsf(h[j]) : largest_hidden;
        product(reference, layer->down, expert, h, parts, true);
        float scale = s->scales ? factor * vector(reference, layer->scale[2], 0)[expert] : factor;
        for (size_t j = 0; j < n_segments * width; j++)
            sums[j] = fmaf(scale, parts[j], sums[j]);
        for (size_t j = 0; s->biases && j < s->n_embd; j++)
            biases[j] = fmaf(factor, vector(reference, layer->bias[2], expert)[j], biases[j]);
    }
    bool joins = false;
    float shared_gate = 1;
    if (s->n_ff_shared != 0) {
        if (s->shared_gate) {
            float logit[PANEL_ROWS];
            product(reference, layer->shared_gate, 0, x, logit, false);
            reference->kernels->sigmoid(logit, 1, &shared_gate);
        }
        product(reference, layer->shared[0], 0, x, gate, false);
        product(reference, layer->shared[1], 0, x, up, false);
        activate(reference, gate, up, s->n_ff_shared, h);
        joins = reference->weights->items[layer->shared[2]->index].packed.segments.n == n_segments;
        product(reference, layer->shared[2], 0, h, parts, joins);
        for (size_t j = 0; joins && j < n_segments * width; j++)
            sums[j] = fmaf(shared_gate, parts[j], sums[j]);
    }
    for (uint32_t stride = 1; stride < n_segments; stride *= 2)
        for (uint32_t i = 0; i + stride < n_segments; i += 2 * stride)
            for (size_t j = 0; j < width; j++)
                sums[i * width + j] += sums[(i + stride) * width + j];
    for (size_t j = 0; j < s->n_embd; j++) {
        y[j] = s->n_ff_shared != 0 && !joins ? fmaf(shared_gate, parts[j], sums[j]) : sums[j];
        if (s->biases)
            y[j] += biases[j];
    }
}

// ---- the device ----

static void open_machine(struct machine *machine, struct layer *layer, const char *isa, size_t n_threads)
{
    struct error error = {0};
    struct device *device;
    struct plan_params params = {.n_rows = N_TOKENS, .n_logits = 5};
    if (cpu_device_create(&(struct cpu_device_params){.pool.n_threads = n_threads, .isa = isa}, &device, &error) !=
            STATUS_OK ||
        machine_open(machine, device, &layer->small, &layer->small.graph, &params, &error) != STATUS_OK)
        fail_msg("%s: %s", layer->setting->name, error.message);
}

static void close_machine(struct machine *machine)
{
    struct device *device = machine->device;
    machine_close(machine);
    device->ops->destroy(device);
}

// All tokens, `batch` at a time.
static enum status run_all(const struct layer *layer, const struct machine *machine, size_t batch,
                           struct kept_rows *kept, struct error *error)
{
    struct machine by_batch = *machine;
    by_batch.batch = batch;
    return machine_run(&by_batch, &layer->small, kept, error);
}

// All tokens one by one, by the model of the contract.
static void expect(const struct layer *layer, const struct machine *machine, float *expected)
{
    struct reference reference = {layer, kernels_c(), machine->weights};
    largest_hidden = 0;
    for (size_t token = 0; token < N_TOKENS; token++)
        run_token(&reference, token, expected + token * layer->setting->n_embd);
    if (layer->setting->size != 0)
        assert_true(largest_hidden >= 65520);
}

static void check_run(const struct layer *layer, const struct machine *machine, const char *isa, size_t batch,
                      const float *expected)
{
    static float actual[N_TOKENS * MAX_WIDTH];
    const struct setting *setting = layer->setting;
    struct kept_rows kept = {.rows = actual, .width = setting->n_embd};
    struct error error = {0};
    memset(actual, 0xff, sizeof(actual));
    if (run_all(layer, machine, batch, &kept, &error) != STATUS_OK)
        fail_msg("%s: %s", setting->name, error.message);
    for (size_t i = 0; i < N_TOKENS * setting->n_embd; i++)
        if (!isfinite(expected[i]) || memcmp(&expected[i], &actual[i], sizeof(float)) != 0)
            fail_msg("%s, %s, batches of %zu: token %zu output %zu is %a, not %a", setting->name, isa, batch,
                     i / setting->n_embd, i % setting->n_embd, (double)actual[i], (double)expected[i]);
}

static void test_against_contract(void **state)
{
    (void)state;
    static float expected[N_TOKENS * MAX_WIDTH];
    static const char *const isas[] = {"c", "avx2", "avx512", "neon"};
    static const size_t threads[] = {1, 2, 3, 7}, batches[] = {1, 2, 7, N_TOKENS};
    for (size_t i = 0; i < N_SETTINGS; i++) {
        struct layer layer;
        layer_open(&layer, &settings[i], NULL);
        for (int j = 0; j < 16; j++) {
            const char *isa = isas[j / 4];
            if (kernels_choose(isa) == NULL)
                continue;
            struct machine machine;
            open_machine(&machine, &layer, isa, threads[j % 4]);
            if (j == 0)
                expect(&layer, &machine, expected);
            for (int b = 0; b < 4; b++)
                check_run(&layer, &machine, isa, batches[b], expected);
            close_machine(&machine);
        }
        layer_close(&layer);
    }
}

// Experts that lie elsewhere in the stack than their number says.
static void test_slots(void **state)
{
    (void)state;
    static float expected[N_TOKENS * MAX_WIDTH];
    const struct setting *setting = &settings[0];
    const int32_t slots[] = {3, 7, 0, 1, 2, 6, 5, 4};
    struct layer plain, moved;
    struct machine machine;
    layer_open(&plain, setting, NULL);
    layer_open(&moved, setting, slots);
    for (size_t i = 0; i < plain.small.graph.n_weights; i++) {
        const struct tensor *tensor = plain.small.graph.weights[i];
        const struct dtype_desc *dtype = dtype_get(tensor->dtype);
        size_t bytes = tensor->ne[0] * tensor->ne[1] / dtype->block * dtype->bytes;
        for (size_t m = 0; m < tensor->ne[2]; m++)
            memcpy(moved.small.bytes[i] + (tensor->n_dims == 3 ? (size_t)slots[m] : m) * bytes,
                   plain.small.bytes[i] + m * bytes, bytes);
    }
    open_machine(&machine, &plain, "c", 1);
    expect(&plain, &machine, expected);
    close_machine(&machine);
    open_machine(&machine, &moved, NULL, 2);
    check_run(&moved, &machine, "the best", 7, expected);
    close_machine(&machine);
    layer_close(&plain);
    layer_close(&moved);
}

// What a run says that must fail; on every number of threads and rows the same.
static void check_fault(const struct layer *layer, const struct machine *machine, const char *const words[2])
{
    static float y[N_TOKENS * MAX_WIDTH];
    static const size_t batches[] = {1, N_TOKENS};
    for (int b = 0; b < 2; b++) {
        struct kept_rows kept = {.rows = y, .width = layer->setting->n_embd};
        struct error error = {0};
        assert_int_equal(run_all(layer, machine, batches[b], &kept, &error), STATUS_INVALID);
        for (int w = 0; w < 2; w++)
            if (strstr(error.message, words[w]) == NULL)
                fail_msg("'%s' does not say '%s'", error.message, words[w]);
    }
}

static void test_absent_expert(void **state)
{
    (void)state;
    const int32_t absent[] = {0, 1, 2, -1, 4, 5, 6, 7}, beyond[] = {0, 1, 2, 8, 4, 5, 6, 7};
    const int32_t *const maps[] = {absent, beyond};
    struct setting setting = settings[0];
    setting.routing.n_used = 8; // all of them, whatever the router says
    for (int m = 0; m < 2; m++) {
        struct layer layer;
        struct machine machine;
        layer_open(&layer, &setting, maps[m]);
        open_machine(&machine, &layer, NULL, 2);
        check_fault(&layer, &machine, (const char *const[]){"layer 7", "expert 3"});
        close_machine(&machine);
        layer_close(&layer);
    }
}

static void test_nan_router(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_SETTINGS; i++) {
        struct layer layer;
        struct machine machine;
        layer_open(&layer, &settings[i], NULL);
        float *router = (float *)(void *)layer.small.bytes[layer.router->index];
        router[1 + settings[i].n_embd] = NAN; // of expert 1
        open_machine(&machine, &layer, NULL, 3);
        check_fault(&layer, &machine, (const char *const[]){"router of layer 7", "mote doctor"});
        close_machine(&machine);
        layer_close(&layer);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_against_contract),
        cmocka_unit_test(test_slots),
        cmocka_unit_test(test_absent_expert),
        cmocka_unit_test(test_nan_router),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
