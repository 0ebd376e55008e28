// Engines: settling parameters, predicting memory, packing weights, making the plan.
#include "engine/engine.h"

#include "base/checked.h"
#include "base/fpenv.h"
#include "base/threads.h"
#include "engine/remote.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    DEFAULT_CONTEXT = 8192,
    DEFAULT_BATCH = 512,
    DEFAULT_LOGITS = 16,
    MAX_CONTEXT = 1 << 28,
    MAX_BATCH = 1 << 16,
    MAX_THREADS = 4096,
};

void mote_engine_params_default(mote_engine_params *params)
{
    *params = (mote_engine_params){.size = sizeof(*params)};
}

static size_t value_or(size_t value, size_t otherwise)
{
    return value != 0 ? value : otherwise;
}

static enum status settle_adapters(const mote_engine_params *params, struct engine_settings *settings,
                                   struct error *error)
{
    settings->adapters = params->adapters;
    settings->n_adapters = params->n_adapters;
    if (params->n_adapters > MAX_ADAPTERS)
        return error_set(error, STATUS_INVALID, "an engine may have at most %d adapters", MAX_ADAPTERS);
    for (size_t i = 0; i < params->n_adapters; i++) {
        if (params->adapters[i].path == NULL || !isfinite(params->adapters[i].scale))
            return error_set(error, STATUS_INVALID, "adapter %zu needs a file and a finite scale", i + 1);
    }
    return STATUS_OK;
}

// Where the split is not what was asked for, or leaves devices with nothing.
static void tell_split(const struct mote_model *model, const struct mesh_split *split, bool rounded)
{
    char eighths[128], idle[64];
    size_t at = 0, idle_at = 0;
    for (uint32_t d = 0; d < split->n_devices; d++) {
        int n = split->eighth[d + 1] - split->eighth[d];
        at += (size_t)snprintf(eighths + at, sizeof(eighths) - at, "%s%d/8", d == 0 ? "" : ", ", n);
        if (n == 0)
            idle_at += (size_t)snprintf(idle + idle_at, sizeof(idle) - idle_at, "%s%u", idle_at == 0 ? "" : ", ", d);
    }
    if (rounded)
        log_message(&model->log, LOG_WARNING, "the split is rounded to eighths: %s", eighths);
    if (idle_at != 0)
        log_message(&model->log, LOG_WARNING, "by this split no part of the model is on device %s (of 0 to %u)", idle,
                    split->n_devices - 1);
}

// Which device has which eighths.
static enum status settle_devices(const struct mote_model *model, const mote_engine_params *params,
                                  struct engine_settings *settings, struct error *error)
{
    size_t n = params->n_devices != 0 ? params->n_devices : params->n_split != 0 ? params->n_split : 1;
    settings->numa = params->numa;
    if (params->numa) {
        n = numa_nodes_available();
        n = n < MAX_DEVICES ? n : MAX_DEVICES;
    }
    if (settings->ranks != NULL) {
        uint32_t n_ranks = settings->ranks->module.n_ranks;
        if (params->numa || (n != 1 && n != n_ranks))
            return error_set(error, STATUS_UNSUPPORTED,
                             "each of %u ranks is one device: leave --devices out, and give --split a share a rank",
                             n_ranks);
        n = n_ranks;
    }
    if (n > MAX_DEVICES)
        return error_set(error, STATUS_INVALID, "%zu devices: a mesh has at most %d", n, MAX_DEVICES);
    settings->split = mesh_split_even((uint32_t)n);
    if (params->n_split == 0)
        return STATUS_OK;
    if (params->n_split != n)
        return error_set(error, STATUS_INVALID, "the split has %zu shares for %zu devices: give one for each",
                         params->n_split, n);
    bool rounded = false;
    enum status status = mesh_split_by_shares(params->split, n, &settings->split, &rounded, error);
    if (status == STATUS_OK)
        tell_split(model, &settings->split, rounded);
    return status;
}

enum status engine_settle(const struct mote_model *model, const mote_engine_params *params,
                          struct engine_settings *settings, struct error *error)
{
    static const enum kv_dtype kinds[] = {
        [MOTE_KV_F32] = KV_DTYPE_F32, [MOTE_KV_F16] = KV_DTYPE_F16, [MOTE_KV_Q8_0] = KV_DTYPE_Q8_0};
    mote_engine_params defaults = {.size = sizeof(defaults)};
    if (params == NULL)
        params = &defaults;
    if (params->n_threads > MAX_THREADS || params->n_context > MAX_CONTEXT || params->n_batch > MAX_BATCH ||
        params->n_sessions > MAX_BATCH || params->n_logits > MAX_BATCH || (unsigned)params->kv > MOTE_KV_Q8_0)
        return error_set(error, STATUS_INVALID,
                         "an engine may have at most %d threads, a context of %d, batches of %d, %d sessions and logit "
                         "rows",
                         MAX_THREADS, MAX_CONTEXT, MAX_BATCH, MAX_BATCH);
    size_t trained = mote_model_n_context(model);
    size_t context = trained != 0 && trained < DEFAULT_CONTEXT ? trained : DEFAULT_CONTEXT;
    bool f32;
    enum status status = precision_parse(params->precision, settings, &f32, error);
    if (status != STATUS_OK)
        return status;
    settings->ranks = (struct ranks *)(void *)params->ranks;
    settings->asked_threads = params->n_threads;
    settings->n_threads = engine_threads(params->n_threads, settings->ranks);
    settings->n_context = value_or(params->n_context, context);
    settings->n_batch = value_or(params->n_batch, DEFAULT_BATCH);
    settings->n_sessions = value_or(params->n_sessions, 1);
    settings->n_logits = value_or(params->n_logits, DEFAULT_LOGITS);
    if (settings->n_logits > settings->n_batch)
        settings->n_logits = settings->n_batch;
    settings->kv = params->kv != MOTE_KV_DEFAULT ? kinds[params->kv] : f32 ? KV_DTYPE_F32 : KV_DTYPE_F16;
    settings->isa = params->isa;
    settings->observe = params->observe;
    settings->range_off = false;
    status = settle_devices(model, params, settings, error);
    if (status != STATUS_OK)
        return status;
    if (settings->ranks == NULL && settings->n_threads < settings->split.n_devices)
        settings->n_threads = settings->split.n_devices; // a driver each
    return settle_adapters(params, settings, error);
}

// ---- what it will take ----

static uint64_t saturating_mul(uint64_t a, uint64_t b)
{
    uint64_t product;
    return checked_mul(a, b, &product) ? product : UINT64_MAX / 4;
}

static void predict(const struct engine_settings *settings, struct engine_draft *draft)
{
    const struct device_ops *ops = draft->device->ops;
    struct plan_memory plan = {0};
    struct kv_kind_layout kinds[MAX_KV_KINDS];
    ops->plan_memory(draft->plan, &plan);
    uint32_t n_kinds = ops->kv_kinds(draft->plan, kinds);
    uint64_t kv = 0, fixed = 0, a_page = 0; // a_page: what 64 more positions take
    for (uint32_t kind = 0; kind < n_kinds; kind++) {
        size_t pages = pages_per_session(&kinds[kind], settings->n_context, settings->n_batch);
        uint64_t one = saturating_mul(kinds[kind].page_bytes, settings->n_sessions);
        draft->n_pages[kind] = pages * settings->n_sessions;
        kv += saturating_mul(one, pages);
        if (kinds[kind].window == 0)
            a_page += one;
        else
            fixed += saturating_mul(one, pages);
    }
    uint64_t ropes = 0;
    for (uint32_t i = 0; i < draft->graph.n_ropes; i++)
        ropes += settings->n_batch * draft->graph.ropes[i].n_rot * sizeof(float);
    mote_memory *memory = &draft->memory;
    *memory = (mote_memory){.weights = plan.weights,
                            .kv = kv,
                            .work = plan.work + ropes,
                            .logits = plan.logits,
                            .available = memory_available()};
    memory->total = memory->weights + memory->kv + memory->work + memory->logits;
    uint64_t without = memory->total - kv + fixed;
    if (memory->available > without)
        memory->n_context_fits =
            a_page == 0 ? settings->n_context : (memory->available - without) / a_page * KV_PAGE_POSITIONS;
}

static enum status open_adapters(const struct mote_model *model, const struct engine_settings *settings,
                                 struct adapters *adapters, struct error *error)
{
    const char *paths[MAX_ADAPTERS];
    for (size_t i = 0; i < settings->n_adapters; i++)
        paths[i] = settings->adapters[i].path;
    return adapters_open(paths, settings->n_adapters, model->gguf, adapters, error);
}

enum status engine_draft_create(struct mote_model *model, const struct engine_settings *settings,
                                struct engine_draft *draft, struct error *error)
{
    memset(draft, 0, sizeof(*draft));
    struct plan_params params = {
        .n_rows = settings->n_batch, .n_logits = settings->n_logits, .kv = settings->kv, .observe = settings->observe};
    enum status status = open_adapters(model, settings, &draft->adapters, error);
    if (status == STATUS_OK)
        status = model_build_adapted(model->gguf, settings->rules, settings->n_rules, &draft->adapters, &draft->graph,
                                     error);
    if (status == STATUS_OK)
        status = precision_check(settings, &draft->graph.graph, error);
    if (status == STATUS_OK)
        status = engine_device_create(settings, &model->log, &draft->device, error);
    if (status == STATUS_OK)
        status = draft->device->ops->plan(draft->device, &draft->graph.graph, NULL, &params, &draft->plan, error);
    if (status == STATUS_OK)
        predict(settings, draft);
    else
        engine_draft_free(draft);
    return status;
}

void engine_draft_free(struct engine_draft *draft)
{
    if (draft->device != NULL) {
        draft->device->ops->free_plan(draft->plan);
        draft->device->ops->destroy(draft->device);
    }
    model_graph_free(&draft->graph);
    adapters_close(&draft->adapters);
    memset(draft, 0, sizeof(*draft));
}

mote_status mote_engine_predict(mote_model *model, const mote_engine_params *params, mote_memory *memory,
                                mote_error *error)
{
    struct engine_settings settings;
    struct engine_draft draft;
    enum status status = engine_settle(model, params, &settings, inner_error(error));
    if (status == STATUS_OK)
        status = engine_draft_create(model, &settings, &draft, inner_error(error));
    if (status != STATUS_OK)
        return (mote_status)status;
    *memory = draft.memory;
    engine_draft_free(&draft);
    return MOTE_OK;
}

static enum status check_memory(const mote_memory *memory, const struct engine_settings *settings, bool force,
                                struct error *error)
{
    if (force || memory->available == 0 || memory->total <= memory->available)
        return STATUS_OK;
    if (memory->n_context_fits == 0)
        return error_set(error, STATUS_MEMORY,
                         "the model takes %llu MiB (weights %llu), but only %llu MiB of memory are available; --force "
                         "goes on all the same",
                         (unsigned long long)(memory->total >> 20), (unsigned long long)(memory->weights >> 20),
                         (unsigned long long)(memory->available >> 20));
    return error_set(error, STATUS_MEMORY,
                     "a context of %zu takes %llu MiB in all (KV cache %llu), but only %llu MiB are available; -c %llu "
                     "fits (--force goes on all the same)",
                     settings->n_context, (unsigned long long)(memory->total >> 20),
                     (unsigned long long)(memory->kv >> 20), (unsigned long long)(memory->available >> 20),
                     (unsigned long long)memory->n_context_fits);
}

// ---- making one ----

struct weight_source {
    struct ranks *ranks;
    const struct gguf *gguf;
    const struct adapters *adapters;
    mote_progress_fn progress;
    void *user;
};

static enum status read_weight(void *user, const struct tensor *weight, uint64_t offset, void *bytes, size_t size,
                               struct error *error)
{
    const struct weight_source *source = user;
    return model_read_weight(source->gguf, weight, offset, bytes, size, error);
}

static enum status read_adapter_weight(void *user, const struct tensor *weight, uint64_t offset, void *bytes,
                                       size_t size, struct error *error)
{
    const struct weight_source *source = user;
    return model_read_weight(source->adapters->files[weight->adapter], weight, offset, bytes, size, error);
}

static int report_progress(void *user, uint64_t done, uint64_t total)
{
    const struct weight_source *source = user;
    if (source->ranks != NULL)
        ranks_alive(source->ranks);
    return source->progress == NULL ? 0 : source->progress(source->user, done, total);
}

// Packs the weights unless an engine before this one did.
static enum status load_weights(struct mote_engine *engine, const mote_engine_params *params,
                                const struct mesh_split *split, struct error *error)
{
    struct mote_model *model = engine->model;
    struct weight_source source = {.gguf = model->gguf, .ranks = engine->ranks};
    if (params != NULL) {
        source.progress = params->progress;
        source.user = params->progress_user;
    }
    struct weight_reader reader = {.read = read_weight, .progress = report_progress, .user = &source};
    enum status status = STATUS_OK;
    pthread_mutex_lock(&model->lock);
    if (model->weights != NULL && !mesh_split_equal(&model->weights_split, split))
        status = error_set(error, STATUS_UNSUPPORTED,
                           "the model's weights are packed for other devices: open the model again for these");
    if (status == STATUS_OK && model->weights == NULL) {
        model->weights_split = *split;
        status = engine->device->ops->pack(engine->device, &engine->graph.graph, &reader, &model->weights, error);
        model->weights_owner = engine->device->ops;
    }
    pthread_mutex_unlock(&model->lock);
    return status;
}

// Adapters are the engine's own.
static enum status load_adapters(struct mote_engine *engine, const struct engine_settings *settings,
                                 struct error *error)
{
    if (engine->n_adapters == 0)
        return STATUS_OK;
    struct weight_source source = {.adapters = &engine->adapters};
    struct weight_reader reader = {.read = read_adapter_weight, .user = &source};
    enum status status = engine->device->ops->pack_adapters(engine->device, &engine->graph.graph, &reader,
                                                            &engine->adapter_weights, error);
    engine->adapter_prints = calloc(engine->n_adapters, sizeof(*engine->adapter_prints));
    if (status == STATUS_OK && engine->adapter_prints == NULL)
        status = error_memory(error, "the engine");
    for (size_t i = 0; status == STATUS_OK && i < engine->n_adapters; i++)
        status = gguf_fingerprint(engine->adapters.files[i], &engine->adapter_prints[i], error);
    adapters_close(&engine->adapters);
    engine->scales = calloc(engine->n_adapters, sizeof(*engine->scales));
    if (status == STATUS_OK && engine->scales == NULL)
        status = error_memory(error, "the engine");
    for (size_t i = 0; status == STATUS_OK && i < engine->n_adapters; i++)
        engine->scales[i] = settings->adapters[i].scale;
    return status;
}

static enum status allocate_run(struct mote_engine *engine, struct error *error)
{
    size_t n = engine->n_batch;
    engine->rows = calloc(n, sizeof(*engine->rows));
    engine->selected = calloc(n, sizeof(*engine->selected));
    engine->origins = calloc(n, sizeof(*engine->origins));
    engine->pages = calloc(n * MAX_KV_KINDS, sizeof(*engine->pages));
    if (engine->n_adapters != 0)
        engine->adapter_scales = calloc(n, engine->n_adapters * sizeof(*engine->adapter_scales));
    bool good = (engine->adapter_scales != NULL) == (engine->n_adapters != 0) && engine->rows != NULL &&
                engine->selected != NULL && engine->origins != NULL && engine->pages != NULL;
    for (uint32_t i = 0; i < engine->graph.n_ropes; i++) {
        engine->rope_tables[i] = calloc(n, engine->graph.ropes[i].n_rot * sizeof(float));
        good = good && engine->rope_tables[i] != NULL;
    }
    return good ? STATUS_OK : error_memory(error, "the engine");
}

static enum status make_plan(struct mote_engine *engine, const struct engine_settings *settings, const size_t *n_pages,
                             struct error *error)
{
    const struct device_ops *ops = engine->device->ops;
    struct plan_params params = {.n_rows = engine->n_batch,
                                 .n_logits = engine->n_logits,
                                 .kv = settings->kv,
                                 .adapter_weights = engine->adapter_weights,
                                 .observe = settings->observe,
                                 .range_off = settings->range_off};
    enum status status =
        ops->plan(engine->device, &engine->graph.graph, engine->model->weights, &params, &engine->plan, error);
    if (status == STATUS_OK)
        status = ops->kv_allocate(engine->plan, n_pages, error);
    if (status != STATUS_OK)
        return status;
    engine->n_kinds = ops->kv_kinds(engine->plan, engine->kinds);
    for (uint32_t kind = 0; kind < engine->n_kinds && status == STATUS_OK; kind++)
        status = pages_create(&engine->pools[kind], n_pages[kind], error);
    return status;
}

// The draft's device and graph become the engine's; its plan, which has no weights, is replaced.
static void adopt(struct mote_engine *engine, const struct engine_settings *settings, struct engine_draft *draft)
{
    engine->n_threads = settings->n_threads;
    engine->n_context = settings->n_context;
    engine->n_batch = settings->n_batch;
    engine->n_sessions = settings->n_sessions;
    engine->n_logits = settings->n_logits;
    engine->kv = settings->kv;
    engine->n_rules = settings->n_rules;
    engine->n_devices = settings->split.n_devices;
    engine->device = draft->device;
    engine->graph = draft->graph;
    engine->adapters = draft->adapters;
    engine->n_adapters = settings->n_adapters;
    engine->device->ops->free_plan(draft->plan);
}

static enum status load(struct mote_engine *engine, const struct engine_settings *settings,
                        const mote_engine_params *params, const struct engine_draft *draft, struct error *error)
{
    enum status status = load_weights(engine, params, &settings->split, error);
    if (status == STATUS_OK)
        status = load_adapters(engine, settings, error);
    if (status == STATUS_OK)
        status = make_plan(engine, settings, draft->n_pages, error);
    if (status == STATUS_OK)
        status = allocate_run(engine, error);
    if (status == STATUS_OK)
        status = remote_allocate(engine, error);
    if (status == STATUS_OK && engine->n_rules != 0) {
        engine->rules = calloc(engine->n_rules, sizeof(*engine->rules));
        if (engine->rules == NULL)
            return error_memory(error, "the engine");
        memcpy(engine->rules, settings->rules, engine->n_rules * sizeof(*engine->rules));
    }
    return status;
}

// Where there are ranks, all take these steps together, and go on only where none failed.
static enum status create(struct mote_engine *engine, const struct engine_settings *settings,
                          const mote_engine_params *params, struct error *error)
{
    struct engine_draft draft = {0};
    struct ranks *ranks = engine->ranks = settings->ranks;
    enum status status = STATUS_OK;
    if (ranks != NULL && ranks->module.rank == 0)
        status = remote_begin_engine(ranks, engine->model, settings, error);
    if (status != STATUS_OK)
        return status;
    status = engine_draft_create(engine->model, settings, &draft, error);
    if (status == STATUS_OK) {
        adopt(engine, settings, &draft);
        status = check_memory(&draft.memory, settings, params != NULL && params->force, error);
    }
    status = remote_agree(ranks, status, error);
    if (status == STATUS_OK)
        status = remote_agree(ranks, load(engine, settings, params, &draft, error), error);
    engine->told = status == STATUS_OK;
    if (status == STATUS_OK)
        log_message(
            &engine->model->log, LOG_INFO,
            "%zu threads, %s kernels; MiB: weights %llu, KV cache %llu (a context of %zu), work %llu, logits %llu",
            engine->n_threads, mote_engine_isa(engine), (unsigned long long)(draft.memory.weights >> 20),
            (unsigned long long)(draft.memory.kv >> 20), engine->n_context,
            (unsigned long long)(draft.memory.work >> 20), (unsigned long long)(draft.memory.logits >> 20));
    return status;
}

enum status engine_create_settled(mote_model *model, const struct engine_settings *settings,
                                  const mote_engine_params *params, mote_engine **result, struct error *error)
{
    struct mote_engine *engine = calloc(1, sizeof(*engine));
    if (engine == NULL)
        return error_memory(error, "the engine");
    engine->model = model;
    struct fpenv saved = fpenv_enter();
    enum status status = create(engine, settings, params, error);
    fpenv_leave(saved);
    if (status != STATUS_OK) {
        mote_engine_destroy(engine);
        return status;
    }
    *result = engine;
    return STATUS_OK;
}

enum status engine_create(mote_model *model, const mote_engine_params *params, const struct engine_extras *extras,
                          mote_engine **engine, struct error *error)
{
    struct engine_settings settings;
    const struct tokenizer *tokenizer;
    enum status status = engine_settle(model, params, &settings, error);
    settings.range_off = extras != NULL && extras->range_off;
    if (status == STATUS_OK) // a model whose vocabulary is broken is broken
        status = model_tokenizer(model, &tokenizer, error);
    return status == STATUS_OK ? engine_create_settled(model, &settings, params, engine, error) : status;
}

mote_status mote_engine_create(mote_model *model, const mote_engine_params *params, mote_engine **engine,
                               mote_error *error)
{
    return (mote_status)engine_create(model, params, NULL, engine, inner_error(error));
}

void mote_engine_destroy(mote_engine *engine)
{
    if (engine == NULL)
        return;
    if (engine->told && engine->ranks != NULL && engine->ranks->module.rank == 0)
        remote_end_engine(engine->ranks);
    remote_free(engine);
    if (engine->device != NULL) {
        engine->device->ops->free_plan(engine->plan);
        engine->device->ops->free_weights(engine->adapter_weights);
        engine->device->ops->destroy(engine->device);
    }
    model_graph_free(&engine->graph);
    adapters_close(&engine->adapters);
    for (uint32_t kind = 0; kind < MAX_KV_KINDS; kind++)
        free(engine->pools[kind].free);
    for (uint32_t i = 0; i < MAX_ROPES; i++)
        free(engine->rope_tables[i]);
    free(engine->rows);
    free(engine->selected);
    free(engine->origins);
    free(engine->pages);
    free(engine->scales);
    free(engine->adapter_prints);
    free(engine->rules);
    free(engine->adapter_scales);
    free(engine);
}

void mote_engine_cancel(mote_engine *engine)
{
    atomic_store(&engine->cancel, true);
}

const char *mote_engine_isa(const mote_engine *engine)
{
    return engine->device->isa;
}

size_t mote_engine_n_threads(const mote_engine *engine)
{
    return engine->n_threads;
}

size_t mote_engine_n_context(const mote_engine *engine)
{
    return engine->n_context;
}

size_t mote_engine_n_devices(const mote_engine *engine)
{
    return engine->n_devices;
}

void mote_engine_stats(const mote_engine *engine, mote_stats *stats)
{
    struct plan_stats plan = {0};
    engine->device->ops->stats(engine->plan, &plan);
    *stats = (mote_stats){.collectives = plan.n_exchanges,
                          .collective_bytes = plan.exchange_bytes,
                          .collective_seconds = 1e-9 * (double)plan.exchange_ns};
}

mote_kv mote_engine_kv(const mote_engine *engine)
{
    static const mote_kv kinds[] = {
        [KV_DTYPE_F32] = MOTE_KV_F32, [KV_DTYPE_F16] = MOTE_KV_F16, [KV_DTYPE_Q8_0] = MOTE_KV_Q8_0};
    return kinds[engine->kv];
}

size_t mote_engine_n_adapters(const mote_engine *engine)
{
    return engine->n_adapters;
}
