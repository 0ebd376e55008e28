// The CPU's plans: which steps there are, that every value has memory of its own for as long as it is needed, and the
// sizes of pages. Plans are made without weights, so a model's dtypes can be changed at will.
#include "base/checked.h"
#include "cpu/plan.h"
#include "gguf/gguf.h"
#include "model/model.h"
#include "tensor/op.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

struct planned {
    struct gguf *gguf;
    struct model_graph model;
    struct device *device;
    struct plan *plan;
};

struct choice {
    const char *name;
    enum dtype matrices; // what the file's matrices are taken for
    bool f32;
    size_t n_rows, n_logits;
    enum kv_dtype kv;
};

static void plan_open(struct planned *planned, const struct choice *choice)
{
    char path[512];
    struct error error = {0};
    snprintf(path, sizeof(path), "%s/models/%s.gguf", TEST_DATA, choice->name);
    memset(planned, 0, sizeof(*planned));
    if (gguf_open(path, &planned->gguf, &error) != STATUS_OK)
        fail_msg("%s", error.message);
    for (size_t i = 0; i < planned->gguf->n_tensors; i++)
        if (planned->gguf->tensors[i].n_dims == 2)
            planned->gguf->tensors[i].dtype = choice->matrices;
    struct plan_params params = {.n_rows = choice->n_rows, .n_logits = choice->n_logits, .kv = choice->kv};
    struct precision_rule f32 = {.kind = "", .precision = PRECISION_F32};
    if (model_build(planned->gguf, &f32, choice->f32 ? 1 : 0, &planned->model, &error) != STATUS_OK ||
        cpu_device_create(&(struct cpu_device_params){.pool.n_threads = 2, .isa = "c"}, &planned->device, &error) !=
            STATUS_OK ||
        planned->device->ops->plan(planned->device, &planned->model.graph, NULL, &params, &planned->plan, &error) !=
            STATUS_OK)
        fail_msg("%s: %s", choice->name, error.message);
}

static void plan_close(struct planned *planned)
{
    planned->device->ops->free_plan(planned->plan);
    planned->device->ops->destroy(planned->device);
    model_graph_free(&planned->model);
    gguf_close(planned->gguf);
}

// ---- steps ----

// A step as text: "rows(add rms_norm round)", "matmul(3)", "matmul(2 glu round)" …
static void describe(const struct plan *plan, const struct step *step, char *text, size_t size)
{
    static const char *const kinds[] = {
        [STEP_ROWS] = "rows", [STEP_MATMUL] = "matmul", [STEP_HEADS] = "heads", [STEP_ATTENTION] = "attention"};
    size_t n = (size_t)snprintf(text, size, "%s(", kinds[step->kind]);
    if (step->kind == STEP_MATMUL)
        n += (size_t)snprintf(text + n, size - n, "%u%s%s", step->n_products, step->glu == NULL ? "" : " glu",
                              step->out_form == NO_INDEX ? "" : " round");
    for (size_t i = 0; i < step->n_ops; i++) {
        const struct node *node = step->ops[i].node;
        n += (size_t)snprintf(text + n, size - n, "%s%s", i == 0 ? "" : " ",
                              node == NULL ? "round" : op_get(node->op)->name);
    }
    if (step->kind == STEP_HEADS)
        n += (size_t)snprintf(text + n, size - n, "%s", step->attention == NULL ? "" : " store");
    snprintf(text + n, size - n, ")%s", step->rows == ROWS_LOGITS ? "!" : "");
    (void)plan;
}

static void check_steps(const struct choice *choice, const char *const *layer, size_t n_layer_steps, const char *first,
                        const char *between, const char *last)
{
    struct planned planned;
    plan_open(&planned, choice);
    const struct plan *plan = planned.plan;
    size_t n_layers = planned.model.h.n_layer, step = 0;
    assert_int_equal(plan->n_steps, n_layers * (n_layer_steps + 1) + 3);
    for (size_t i = 0; i < plan->n_steps; i++, step++) {
        size_t at = i % (n_layer_steps + 1);
        const char *expected = i == 0                   ? first
                               : i + 3 == plan->n_steps ? last
                               : i + 2 == plan->n_steps ? "rows(select_rows rms_norm round)!"
                               : i + 1 == plan->n_steps ? "matmul(1)!"
                               : at == 0                ? between
                                                        : layer[at - 1];
        char text[256];
        describe(plan, &plan->steps[i], text, sizeof(text));
        if (strcmp(text, expected) != 0)
            fail_msg("%s: step %zu is %s, not %s", choice->name, i, text, expected);
    }
    assert_int_equal(plan->tail, plan->n_steps - 2);
    plan_close(&planned);
}

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static void test_steps(void **state)
{
    (void)state;
    // With blocks the gated unit's result is rounded where it is made: eight steps a layer.
    static const char *const q8[] = {"matmul(3)", "heads(rope rope store)",   "attention()",         "rows(round)",
                                     "matmul(1)", "rows(add rms_norm round)", "matmul(2 glu round)", "matmul(1)"};
    check_steps(&(struct choice){.name = "llama", .matrices = DTYPE_Q8_0, .n_rows = 8, .n_logits = 2}, q8, COUNT(q8),
                "rows(embed rms_norm round)", "rows(add rms_norm round)", "rows(add)");
    // With F16 the tiles of the gated unit are the segments, each with its own maximum.
    check_steps(&(struct choice){.name = "llama", .matrices = DTYPE_F16, .n_rows = 8, .n_logits = 2}, q8, COUNT(q8),
                "rows(embed rms_norm round)", "rows(add rms_norm round)", "rows(add)");
    check_steps(&(struct choice){.name = "llama", .matrices = DTYPE_Q8_0, .f32 = true, .n_rows = 8, .n_logits = 2}, q8,
                COUNT(q8), "rows(embed rms_norm round)", "rows(add rms_norm round)", "rows(add)");
    // Biases cost a step, head norms none.
    static const char *const biases[] = {
        "matmul(3)", "rows(add add add)",        "heads(rope rope store)", "attention()", "rows(round)",
        "matmul(1)", "rows(add rms_norm round)", "matmul(2 glu round)",    "matmul(1)"};
    check_steps(&(struct choice){.name = "qwen2", .matrices = DTYPE_Q4_0, .n_rows = 8, .n_logits = 2}, biases,
                COUNT(biases), "rows(embed rms_norm round)", "rows(add rms_norm round)", "rows(add)");
    static const char *const norms[] = {
        "matmul(3)", "heads(rms_norm rms_norm rope rope store)", "attention()",         "rows(round)",
        "matmul(1)", "rows(rms_norm add rms_norm round)",        "matmul(2 glu round)", "matmul(1)"};
    check_steps(&(struct choice){.name = "gemma3", .matrices = DTYPE_Q8_0, .n_rows = 8, .n_logits = 2}, norms,
                COUNT(norms), "rows(embed scale rms_norm round)", "rows(rms_norm add rms_norm round)",
                "rows(rms_norm add)");
}

// ---- memory ----

static void assert_lives(const struct slot *slot, size_t step)
{
    assert_true(slot->used && slot->first <= step && step <= slot->last);
}

static void assert_value_lives(const struct plan *plan, const struct tensor *tensor, size_t step)
{
    if (tensor->rows != ROWS_NONE)
        assert_lives(&plan->slots[tensor->index], step);
}

// Whatever a step reads or writes lives then.
static void check_uses(const struct plan *plan, size_t i)
{
    const struct step *step = &plan->steps[i];
    for (size_t op = 0; op < step->n_ops; op++) {
        const struct node *node = step->ops[op].node;
        if (node == NULL) {
            const struct form *form = &plan->forms[step->ops[op].form];
            assert_value_lives(plan, form->value, i);
            assert_lives(&form->slot, i);
            assert_true(form->slot.by_rows);
            continue;
        }
        for (uint32_t s = 0; s < node->n_sources; s++)
            assert_value_lives(plan, node->sources[s], i);
        assert_value_lives(plan, node->result, i);
    }
    if (step->kind == STEP_MATMUL) {
        assert_lives(&plan->forms[step->source].slot, i);
        for (uint32_t p = 0; p < step->n_products && step->glu == NULL; p++)
            assert_value_lives(plan, step->products[p].node->result, i);
        if (step->out_form != NO_INDEX) {
            assert_lives(&plan->forms[step->out_form].slot, i);
            assert_false(plan->forms[step->out_form].slot.by_rows);
        } else if (step->glu != NULL) {
            assert_value_lives(plan, step->glu->result, i);
        }
    }
    if (step->attention != NULL) {
        const struct node *node = step->attention;
        bool heads = step->kind == STEP_HEADS;
        assert_value_lives(plan, node->sources[heads ? 1 : 0], i);
        assert_value_lives(plan, heads ? node->sources[2] : node->result, i);
    }
}

// A slot's memory, and when nothing else may lie there. Row steps may run without a barrier behind them, so what one
// uses is still read until the next step that has one.
struct region {
    size_t begin, end;
    size_t first, last;
};

static struct region region_of(const struct plan *plan, const struct slot *slot, bool private_memory)
{
    size_t rows = slot->rows == ROWS_LOGITS ? plan->params.n_logits : plan->params.n_rows;
    size_t begin = private_memory ? slot->private_offset : slot->offset;
    struct region region = {.begin = begin,
                            .end = begin + slot->row_bytes * (private_memory ? 1 : rows),
                            .first = slot->first,
                            .last = slot->last};
    while (region.last + 1 < plan->n_steps && plan->steps[region.last].kind == STEP_ROWS)
        region.last++;
    return region;
}

static void check_regions(const struct plan *plan, bool private_memory)
{
    struct region regions[512];
    size_t n = 0, n_values = plan->graph->n_values, size = private_memory ? plan->private_bytes : plan->memory_bytes;
    for (size_t i = 0; i < n_values + plan->n_forms; i++) {
        const struct slot *slot = i < n_values ? &plan->slots[i] : &plan->forms[i - n_values].slot;
        if (!slot->used || (private_memory && !slot->by_rows))
            continue;
        assert_in_range(n, 0, 511);
        struct region region = regions[n++] = region_of(plan, slot, private_memory);
        assert_true(region.begin < region.end && region.end <= size);
        assert_true(region.begin % 64 == 0 && slot->row_bytes % 64 == 0);
        for (size_t j = 0; j + 1 < n; j++) {
            bool apart = regions[j].end <= region.begin || region.end <= regions[j].begin;
            bool later = regions[j].last < region.first || region.last < regions[j].first;
            if (!apart && !later)
                fail_msg("%s memory: [%zu, %zu) of steps %zu to %zu and [%zu, %zu) of steps %zu to %zu",
                         private_memory ? "private" : "shared", regions[j].begin, regions[j].end, regions[j].first,
                         regions[j].last, region.begin, region.end, region.first, region.last);
        }
    }
    assert_true(n > 10);
}

static void test_memory(void **state)
{
    (void)state;
    static const char *const names[] = {"llama", "qwen2", "qwen3", "gemma3"};
    static const enum dtype dtypes[] = {DTYPE_F16, DTYPE_Q8_0, DTYPE_F32};
    static const size_t sizes[][2] = {{1, 1}, {8, 8}, {40, 3}, {512, 16}};
    for (size_t m = 0; m < COUNT(names); m++)
        for (size_t d = 0; d < COUNT(dtypes); d++)
            for (size_t s = 0; s < COUNT(sizes); s++) {
                struct planned planned;
                plan_open(&planned, &(struct choice){.name = names[m],
                                                     .matrices = dtypes[d],
                                                     .n_rows = sizes[s][0],
                                                     .n_logits = sizes[s][1],
                                                     .kv = KV_DTYPE_F16});
                const struct plan *plan = planned.plan;
                for (size_t i = 0; i < plan->n_steps; i++)
                    check_uses(plan, i);
                check_regions(plan, false);
                check_regions(plan, true);
                // The tail runs again and again over what it selects from, and its logits are read behind it.
                const struct node *select = plan->steps[plan->tail].ops[0].node;
                assert_int_equal(plan->slots[select->sources[0]->index].last, plan->n_steps - 1);
                assert_int_equal(plan->slots[plan->graph->output->index].last, plan->n_steps - 1);
                plan_close(&planned);
            }
}

// The capacity of logit rows is apart from that of the batch.
static void test_logits_capacity(void **state)
{
    (void)state;
    struct plan_memory memory[3];
    static const size_t sizes[][2] = {{256, 4}, {256, 64}, {64, 4}};
    for (size_t i = 0; i < 3; i++) {
        struct planned planned;
        plan_open(
            &planned,
            &(struct choice){.name = "llama", .matrices = DTYPE_F16, .n_rows = sizes[i][0], .n_logits = sizes[i][1]});
        planned.device->ops->plan_memory(planned.plan, &memory[i]);
        assert_int_equal(memory[i].logits, planned.model.h.n_vocab * sizeof(float) * sizes[i][1]);
        plan_close(&planned);
    }
    assert_true(memory[2].work < memory[0].work);
    // The weights at 1.05 × their dtype's size at most, no table twice.
    assert_int_equal(memory[0].weights, memory[1].weights);
    assert_in_range(memory[0].weights, 250000, 275000); // the file has 267 kB, of which 257 kB tensors
}

// ---- pages ----

static void test_pages(void **state)
{
    (void)state;
    // A KV head: 64 keys and values of 16, and 64 scales of each.
    static const struct {
        const char *name;
        enum kv_dtype kv;
        size_t head_bytes;
    } cases[] = {
        {"llama", KV_DTYPE_F32, 64 * 2 * (16 * 4 + 4)},  {"llama", KV_DTYPE_F16, 64 * 2 * (16 * 2 + 4)},
        {"qwen3", KV_DTYPE_F16, 64 * 2 * (32 * 2 + 4)},  {"qwen3", KV_DTYPE_Q8_0, 64 * 2 * (32 + 4)},
        {"gemma3", KV_DTYPE_F16, 64 * 2 * (16 * 2 + 4)},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct planned planned;
        plan_open(&planned,
                  &(struct choice){
                      .name = cases[i].name, .matrices = DTYPE_F16, .n_rows = 8, .n_logits = 1, .kv = cases[i].kv});
        struct kv_kind_layout kinds[MAX_KV_KINDS];
        uint32_t n_kinds = planned.device->ops->kv_kinds(planned.plan, kinds), n_layers = 0;
        bool windows = strcmp(cases[i].name, "gemma3") == 0;
        assert_int_equal(n_kinds, windows ? 2 : 1);
        for (uint32_t kind = 0; kind < n_kinds; kind++) {
            assert_int_equal(kinds[kind].page_bytes,
                             kinds[kind].n_layers * planned.model.h.n_kv_head * cases[i].head_bytes);
            n_layers += kinds[kind].n_layers;
        }
        assert_int_equal(n_layers, planned.model.h.n_layer);
        if (windows) { // every sixth layer sees all
            assert_int_equal(kinds[0].window, 8);
            assert_int_equal(kinds[0].n_layers, 6);
            assert_int_equal(kinds[1].window, 0);
        }
        // Heads lie apart within a page.
        for (size_t layer = 0; layer < planned.model.graph.n_kv_layers; layer++) {
            const struct kv_place *place = &planned.plan->kv_places[layer];
            assert_int_equal(place->head_bytes, cases[i].head_bytes);
            assert_true(place->k_scale < place->v && place->v < place->v_scale && place->v_scale < place->head_bytes);
            assert_true(place->offset + place->head_bytes * planned.model.h.n_kv_head <= kinds[place->kind].page_bytes);
            for (size_t other = 0; other < layer; other++) {
                const struct kv_place *before = &planned.plan->kv_places[other];
                assert_true(before->kind != place->kind || before->offset != place->offset);
            }
        }
        plan_close(&planned);
    }
}

// Q8_0 pages need heads of whole blocks: an error that says what to do.
static void test_refused_pages(void **state)
{
    (void)state;
    struct graph graph;
    struct device *device = NULL;
    struct plan *plan = NULL;
    struct error error = {0};
    graph_init(&graph);
    graph_kv_layer(&graph, (struct kv_layer){.n_head = 1, .k_dim = 48, .v_dim = 32});
    assert_int_equal(cpu_device_create(&(struct cpu_device_params){.pool.n_threads = 1, .isa = "c"}, &device, &error),
                     STATUS_OK);
    struct plan_params params = {.n_rows = 1, .n_logits = 1, .kv = KV_DTYPE_Q8_0};
    assert_int_equal(device->ops->plan(device, &graph, NULL, &params, &plan, &error), STATUS_UNSUPPORTED);
    assert_non_null(strstr(error.message, "f16"));
    params.kv = KV_DTYPE_F16; // then it is the graph that is empty
    assert_int_equal(device->ops->plan(device, &graph, NULL, &params, &plan, &error), STATUS_INVALID);
    for (uint32_t window = 1; window <= MAX_KV_KINDS; window++)
        graph_kv_layer(&graph, (struct kv_layer){.n_head = 1, .k_dim = 32, .v_dim = 32, .window = window});
    assert_int_equal(device->ops->plan(device, &graph, NULL, &params, &plan, &error), STATUS_UNSUPPORTED);
    assert_non_null(strstr(error.message, "windows"));
    assert_int_equal(cpu_device_create(&(struct cpu_device_params){.pool.n_threads = 1, .isa = "mmx"}, &device, &error),
                     STATUS_UNSUPPORTED);
    device->ops->destroy(device);
    graph_free(&graph);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_steps), cmocka_unit_test(test_memory),        cmocka_unit_test(test_logits_capacity),
        cmocka_unit_test(test_pages), cmocka_unit_test(test_refused_pages),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
