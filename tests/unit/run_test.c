// Running plans on the device itself, with positions and pages that a session would take long to reach: one row's keys
// split over threads, in several waves, give the bits of one thread that goes through them.
#include "cpu/plan.h"
#include "gguf/gguf.h"
#include "model/model.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_PAGES = 7, N_COMPARED = 256 }; // logits

struct runner {
    struct gguf *gguf;
    struct model_graph model;
    struct device *device;
    struct weights *weights;
    struct plan *plan;
};

static enum status read_weight(void *user, const struct tensor *weight, uint64_t offset, void *bytes, size_t size,
                               struct error *error)
{
    const struct gguf *gguf = user;
    return gguf_read_tensor(gguf, gguf_find_tensor(gguf, weight->name), offset, bytes, size, error);
}

// Fills the pages with keys and values in [-1, 1), the same for every runner.
static void fill_pages(struct plan *plan)
{
    uint32_t state = 1;
    for (uint32_t kind = 0; kind < plan->n_kinds; kind++) {
        float *values = (float *)(void *)plan->pages[kind];
        for (size_t i = 0; i < N_PAGES * plan->kinds[kind].page_bytes / sizeof(float); i++) {
            state = state * 1664525u + 1013904223u;
            values[i] = (float)(int32_t)state * 0x1p-31f;
        }
    }
}

static void runner_open(struct runner *runner, const char *name, size_t n_threads)
{
    char path[512];
    struct error error = {0};
    memset(runner, 0, sizeof(*runner));
    snprintf(path, sizeof(path), "%s/models/%s.gguf", TEST_DATA, name);
    if (gguf_open(path, &runner->gguf, &error) != STATUS_OK ||
        model_build(runner->gguf, NULL, 0, &runner->model, &error) != STATUS_OK ||
        cpu_device_create(&(struct cpu_device_params){.pool.n_threads = n_threads}, &runner->device, &error) !=
            STATUS_OK)
        fail_msg("%s", error.message);
    const struct device_ops *ops = runner->device->ops;
    struct weight_reader reader = {.read = read_weight, .user = runner->gguf};
    struct plan_params params = {.n_rows = 4, .n_logits = 2, .kv = KV_DTYPE_F32};
    static const size_t n_pages[MAX_KV_KINDS] = {N_PAGES, N_PAGES, N_PAGES, N_PAGES};
    const struct graph *graph = &runner->model.graph;
    if (ops->pack(runner->device, graph, &reader, &runner->weights, &error) != STATUS_OK ||
        ops->plan(runner->device, graph, runner->weights, &params, &runner->plan, &error) != STATUS_OK ||
        ops->kv_allocate(runner->plan, n_pages, &error) != STATUS_OK)
        fail_msg("%s", error.message);
}

static void runner_close(struct runner *runner)
{
    runner->device->ops->free_plan(runner->plan);
    runner->device->ops->free_weights(runner->weights);
    runner->device->ops->destroy(runner->device);
    model_graph_free(&runner->model);
    gguf_close(runner->gguf);
}

static int keep(void *user, size_t selected, const float *logits)
{
    (void)selected;
    memcpy(user, logits, N_COMPARED * sizeof(float));
    return 0;
}

// The logits of one token at a position; its page table names the same few pages again and again.
static void run_at(struct runner *runner, uint32_t position, float *logits)
{
    size_t n_ids = position / KV_PAGE_POSITIONS + 1;
    uint32_t *ids = malloc(n_ids * sizeof(*ids));
    float *tables[MAX_ROPES] = {NULL};
    const uint32_t *pages[MAX_KV_KINDS];
    assert_non_null(ids);
    for (size_t i = 0; i < n_ids; i++)
        ids[i] = (uint32_t)(i * 3 % N_PAGES);
    for (uint32_t kind = 0; kind < MAX_KV_KINDS; kind++)
        pages[kind] = ids;
    const struct row row = {.token = 42, .position = position};
    const uint32_t selected = 0;
    struct run run = {.rows = &row,
                      .n_rows = 1,
                      .selected = &selected,
                      .n_selected = 1,
                      .pages = pages,
                      .on_logits = keep,
                      .user = logits};
    for (uint32_t i = 0; i < runner->model.n_ropes; i++) {
        run.ropes[i] = tables[i] = malloc(runner->model.ropes[i].n_rot * sizeof(float));
        assert_non_null(tables[i]);
        rope_fill(&runner->model.ropes[i], position, tables[i]);
    }
    struct error error = {0};
    fill_pages(runner->plan);
    if (runner->device->ops->run(runner->plan, &run, &error) != STATUS_OK)
        fail_msg("%s", error.message);
    for (uint32_t i = 0; i < runner->model.n_ropes; i++)
        free(tables[i]);
    free(ids);
}

static void test_split_keys(void **state)
{
    (void)state;
    enum { WAVE = MAX_SPLIT_CHUNKS * KV_PAGE_POSITIONS };
    static const uint32_t positions[] = {
        0, 63, 64, 1000, WAVE - 1, WAVE, WAVE + 1, 2 * WAVE - 1, 2 * WAVE - 64, 2 * WAVE - 65, 2 * WAVE, 3 * WAVE + 77};
    enum { N_POSITIONS = sizeof(positions) / sizeof(positions[0]) };
    static const char *const names[] = {"llama", "gemma3"};
    static float expected[N_POSITIONS][N_COMPARED];
    float logits[N_COMPARED];
    for (size_t m = 0; m < 2; m++) {
        for (size_t n_threads = 1; n_threads <= 5; n_threads += n_threads == 1 ? 1 : 3) {
            struct runner runner;
            runner_open(&runner, names[m], n_threads);
            for (size_t i = 0; i < N_POSITIONS; i++) {
                run_at(&runner, positions[i], n_threads == 1 ? expected[i] : logits);
                if (n_threads > 1 && memcmp(logits, expected[i], N_COMPARED * sizeof(float)) != 0)
                    fail_msg("%s: %zu threads at position %u give other bits", names[m], n_threads, positions[i]);
                if (i > 0)
                    assert_memory_not_equal(expected[i], expected[i - 1], N_COMPARED * sizeof(float));
            }
            runner_close(&runner);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_split_keys)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
