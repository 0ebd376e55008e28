// Where a plan's memory lies. A plan packs values whose lives do not meet into the same bytes, and hands scratch to
// kernels that write as much as they were promised; AddressSanitizer sees neither, since all is one allocation. So each
// model here is run twice: as planned, and with every value, every thread's table and every page in memory of its own,
// filled with NaN and with guard bytes behind it. The bits must be the same, and the guards whole.
#include "base/checked.h"
#include "cpu/plan.h"
#include "engine/engine.h"
#include "model_variant.h"

enum { N_TOKENS = 90, N_BATCH = 17, GUARD = 64 * 1024, FILL = 0xff };

static mote_error error;

struct choice {
    const char *precision;
    mote_kv kv;
    size_t n_threads;
};

// ---- runs ----

struct logits {
    float *values; // [N_TOKENS][n_vocab]
    size_t n_vocab, n;
};

static int keep(void *user, size_t input, size_t index, const float *logits)
{
    struct logits *kept = user;
    (void)input;
    (void)index;
    memcpy(kept->values + kept->n++ * kept->n_vocab, logits, kept->n_vocab * sizeof(float));
    return 0;
}

// A prompt in batches, then tokens one by one.
static void run(mote_engine *engine, struct logits *logits)
{
    int32_t tokens[N_TOKENS];
    for (int32_t i = 0; i < N_TOKENS; i++)
        tokens[i] = (i * 37 + i / 7) % 250;
    mote_session *session = NULL;
    assert_int_equal(mote_session_create(engine, &session, &error), MOTE_OK);
    logits->n = 0;
    for (size_t i = 0; i < N_TOKENS;) {
        size_t n = i == 0 ? N_TOKENS - 6 : 1;
        mote_input input = {.session = session, .tokens = tokens + i, .n_tokens = n, .want = MOTE_WANT_ALL};
        if (mote_engine_run(engine, &input, 1, keep, logits, &error) != MOTE_OK)
            fail_msg("%s", error.message);
        i += n;
    }
    mote_session_destroy(session);
    assert_int_equal(logits->n, N_TOKENS);
}

// ---- memory of its own ----

// Bytes that something takes, and where its guard begins.
struct guards {
    const uint8_t *at[4096];
    size_t n;
};

static void check_guards(const struct guards *guards, const char *what)
{
    for (size_t i = 0; i < guards->n; i++) {
        for (size_t j = 0; j < 64; j++) {
            if (guards->at[i][j] != FILL)
                fail_msg("%s: byte %zu behind item %zu of %zu was written to", what, j, i, guards->n);
        }
    }
}

// Takes `bytes` of the memory at *total; counts them where memory is NULL.
static size_t take(uint8_t *memory, size_t bytes, size_t *total, struct guards *guards)
{
    size_t offset = *total;
    *total = round_up(offset + bytes + 64, 64);
    if (memory != NULL) {
        assert_true(guards->n < sizeof(guards->at) / sizeof(guards->at[0]));
        guards->at[guards->n++] = memory + offset + bytes;
    }
    return offset;
}

static uint8_t *filled(size_t bytes)
{
    uint8_t *memory = cpu_allocate(bytes);
    assert_non_null(memory);
    memset(memory, FILL, bytes);
    return memory;
}

static struct slot *slot_at(struct plan *plan, size_t i)
{
    size_t n_values = plan->graph->n_values, n_forms = plan->n_forms;
    if (i >= n_values + n_forms)
        return &plan->hiddens[i - n_values - n_forms].slot;
    return i < n_values ? &plan->slots[i] : &plan->forms[i - n_values].slot;
}

static size_t slot_bytes(const struct plan *plan, const struct slot *slot)
{
    size_t rows = slot->rows == ROWS_LOGITS ? plan->params.n_logits : plan->params.n_rows;
    return slot->row_bytes * rows * (slot->rows == ROWS_PAIRS ? slot->per_row : 1);
}

// All slots one behind the other: shared rows, and each thread's private ones.
static void spread_slots(struct plan *plan, uint8_t *memory, size_t *shared, uint8_t *private, size_t *private_bytes,
                         struct guards *guards)
{
    for (size_t i = 0; i < plan->graph->n_values + plan->n_forms + plan->n_hiddens; i++) {
        struct slot *slot = slot_at(plan, i);
        if (!slot->used)
            continue;
        slot->offset = take(memory, slot_bytes(plan, slot), shared, guards);
        if (slot->by_rows)
            slot->private_offset = take(private, slot->row_bytes, private_bytes, guards);
    }
}

static void spread(struct plan *plan, size_t n_pages[MAX_KV_KINDS], struct guards *guards)
{
    size_t shared = 0, private = 0, scratch = plan->scratch_bytes, pairs = plan->pairs_bytes;
    size_t lora = plan->lora_bytes;
    spread_slots(plan, NULL, &shared, NULL, &private, guards);
    free(plan->memory);
    free(plan->thread_memory);
    free(plan->partials);
    plan->memory = filled(shared);
    plan->partials = (float *)(void *)filled(plan->partials_bytes + GUARD);
    guards->at[guards->n++] = (uint8_t *)plan->partials + plan->partials_bytes;
    plan->memory_bytes = shared;
    plan->private_bytes = private;
    plan->pairs_bytes = pairs + GUARD;
    plan->scratch_bytes = scratch + GUARD;
    plan->lora_bytes = lora + GUARD;
    plan->thread_bytes = round_up(plan->private_bytes, 4096) + round_up(plan->pairs_bytes, 4096) +
                         round_up(plan->scratch_bytes, 4096) + round_up(plan->lora_bytes, 4096);
    plan->thread_memory = filled(plan->thread_bytes * plan->device->n_threads);
    for (size_t t = 0; t < plan->device->n_threads; t++) {
        uint8_t *memory = plan->thread_memory + t * plan->thread_bytes;
        shared = private = 0;
        spread_slots(plan, plan->memory, &shared, memory, &private, guards);
        memory += round_up(plan->private_bytes, 4096);
        guards->at[guards->n++] = memory + pairs;
        memory += round_up(plan->pairs_bytes, 4096);
        guards->at[guards->n++] = memory + scratch;
        guards->at[guards->n++] = memory + round_up(plan->scratch_bytes, 4096) + lora;
    }
    for (uint32_t kind = 0; kind < plan->n_kinds; kind++) {
        size_t bytes = n_pages[kind] * plan->kinds[kind].page_bytes;
        free(plan->pages[kind]);
        plan->pages[kind] = filled(bytes + GUARD);
        guards->at[guards->n++] = plan->pages[kind] + bytes;
    }
}

// n_adapters of the adapters that the tests' data has for qwen3moe-tiny.
static void check(mote_model *model, const struct choice *choice, size_t n_adapters, const char *what)
{
    mote_engine_params params;
    mote_engine_params_default(&params);
    params.n_threads = choice->n_threads;
    params.n_context = N_TOKENS;
    params.n_batch = N_BATCH;
    params.n_logits = 3;
    params.precision = choice->precision;
    params.kv = choice->kv;
    static const mote_adapter adapters[] = {{TEST_DATA "/lora/qwen3moe-tiny.lora-attention.gguf", 1},
                                            {TEST_DATA "/lora/qwen3moe-tiny.lora-experts.gguf", 0.5f}};
    params.adapters = adapters;
    params.n_adapters = n_adapters;
    mote_engine *engine = NULL;
    mote_status status = mote_engine_create(model, &params, &engine, &error);
    if (status == MOTE_UNSUPPORTED && choice->kv == MOTE_KV_Q8_0)
        return; // heads that are no multiple of 32
    if (status != MOTE_OK)
        fail_msg("%s: %s", what, error.message);
    size_t n_vocab = mote_model_n_vocab(model), bytes = N_TOKENS * n_vocab * sizeof(float);
    struct logits planned = {.values = malloc(bytes), .n_vocab = n_vocab};
    struct logits apart = {.values = malloc(bytes), .n_vocab = n_vocab};
    struct guards *guards = calloc(1, sizeof(*guards));
    assert_true(planned.values != NULL && apart.values != NULL && guards != NULL);
    memset(engine->plan->memory, FILL, engine->plan->memory_bytes);
    memset(engine->plan->thread_memory, FILL, engine->plan->thread_bytes * choice->n_threads);
    run(engine, &planned);
    size_t n_pages[MAX_KV_KINDS];
    for (uint32_t kind = 0; kind < engine->n_kinds; kind++)
        n_pages[kind] = engine->pools[kind].n_pages;
    spread(engine->plan, n_pages, guards);
    run(engine, &apart);
    check_guards(guards, what);
    if (memcmp(planned.values, apart.values, bytes) != 0)
        fail_msg("%s: %zu threads: values that share memory are not those that have memory of their own", what,
                 choice->n_threads);
    free(planned.values);
    free(apart.values);
    free(guards);
    mote_engine_destroy(engine);
}

static void check_file(const char *path, size_t n_adapters, const char *what)
{
    static const struct choice choices[] = {
        {NULL, MOTE_KV_F16, 1},  {NULL, MOTE_KV_F16, 3}, {NULL, MOTE_KV_Q8_0, 2},
        {"f32", MOTE_KV_F32, 2}, {NULL, MOTE_KV_F32, 7},
    };
    mote_model *model = NULL;
    if (mote_model_open(path, NULL, &model, &error) != MOTE_OK)
        fail_msg("%s", error.message);
    for (size_t i = 0; i < sizeof(choices) / sizeof(choices[0]); i++)
        check(model, &choices[i], n_adapters, what);
    mote_model_close(model);
}

// ---- models ----

static void test_tiny_models(void **state)
{
    static const char *const names[] = {
        "llama",          "gemma3",         "mixtral",      "qwen2moe",         "qwen3moe",      "olmoe",
        "granitemoe",     "mellum",         "gpt-oss",      "gpt-oss-mxfp4",    "glm4moe",       "mistral4",
        "deepseek2",      "mistral3-far",   "mistral4-far", "mellum-bases",     "deepseek2-old", "deepseek2-blocks",
        "mixtral-pieces", "qwen2moe-dense", "granite4",     "gpt-oss-published"};
    (void)state;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        char path[512];
        snprintf(path, sizeof(path), "%s/models/%s.gguf", TEST_DATA, names[i]);
        check_file(path, 0, names[i]);
    }
}

static void test_adapters(void **state)
{
    (void)state;
    check_file(TEST_DATA "/lora/qwen3moe-tiny.gguf", 1, "an adapter of attention");
    check_file(TEST_DATA "/lora/qwen3moe-tiny.gguf", 2, "adapters of attention and of experts");
}

static void check_variant(const char *name, const struct edit *edits, const char *what)
{
    char path[512], folder[] = "/tmp/mote-bounds-XXXXXX";
    struct gguf *base = NULL;
    struct error inner = {0};
    snprintf(path, sizeof(path), "%s/models/%s.gguf", TEST_DATA, name);
    variant_must(gguf_open(path, &base, &inner), &inner);
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/variant.gguf", folder);
    variant_write(base, edits, path);
    gguf_close(base);
    check_file(path, 0, what);
    unlink(path);
    rmdir(folder);
}

// Every expert used by every row: as many pairs as a batch can have.
static void test_all_experts_used(void **state)
{
    (void)state;
    static const struct edit edits[] = {{.kind = SET_U32, .name = "expert_used_count", .number = 8}, {.kind = NO_EDIT}};
    check_variant("mixtral", edits, "all experts used");
    check_variant("gpt-oss", edits, "all experts used, with biases");
}

// One expert a row: a single row is then a single pair, which every thread makes for itself.
static void test_one_expert_used(void **state)
{
    (void)state;
    static const struct edit edits[] = {{.kind = SET_U32, .name = "expert_used_count", .number = 1}, {.kind = NO_EDIT}};
    check_variant("mixtral", edits, "one expert used");
    check_variant("gpt-oss", edits, "one expert used, with biases");
    check_variant("qwen2moe", edits, "one expert used, with a shared one");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tiny_models),
        cmocka_unit_test(test_adapters),
        cmocka_unit_test(test_all_experts_used),
        cmocka_unit_test(test_one_expert_used),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
