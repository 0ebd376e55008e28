// What rank 0 says to the others: make an engine, run these rows, end it, leave. Runs go as numbers: rows, pages,
// scales; angles are computed anew, as they are functions of the position alone.
#include "engine/remote.h"

#include "base/checked.h"
#include "base/fpenv.h"
#include "engine/identity.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

enum {
    PROTOCOL = 2,
    INLINE_BYTES = 3584, // of a run, that travel with its command: decoding is one message, and a small one for MPI
};

enum command { COMMAND_LEAVE, COMMAND_ENGINE, COMMAND_RUN, COMMAND_KV_READ, COMMAND_KV_WRITE, COMMAND_END };

struct word {
    uint32_t command;
    uint32_t n_rows, n_selected, n_sessions, n_scales;
    struct kv_page page;
    uint64_t payload; // bytes, of which the first are here
    uint8_t bytes[INLINE_BYTES];
};

struct remote_engine {
    char path[PATH_MAX];
    struct identity file;
    uint64_t n_threads, n_context, n_batch, n_sessions, n_logits;
    struct mesh_split split;
    int32_t kv;
    uint32_t n_rules, n_adapters;
    struct precision_rule rules[MAX_PRECISION_RULES];
    bool observe, range_off;
};

struct remote_adapter {
    char path[PATH_MAX];
    struct identity file;
    float scale;
};

// ---- rank 0 ----

// A path that means the same in another folder.
static void fill_path(const char *path, char whole[PATH_MAX])
{
    if (realpath(path, whole) == NULL) {
        strncpy(whole, path, PATH_MAX - 1);
        whole[PATH_MAX - 1] = '\0';
    }
}

static enum status send_word(struct ranks *ranks, struct word *word, struct error *error)
{
    return ranks_tell(ranks, word, sizeof(*word), true, error);
}

static enum status send_command(struct ranks *ranks, enum command command, struct error *error)
{
    struct word word = {.command = command};
    return send_word(ranks, &word, error);
}

static enum status fill_engine(const struct mote_model *model, const struct engine_settings *settings,
                               struct remote_engine *engine, struct error *error)
{
    memset(engine, 0, sizeof(*engine));
    fill_path(model->gguf->parts[0].path, engine->path);
    engine->n_threads = settings->asked_threads;
    engine->n_context = settings->n_context;
    engine->n_batch = settings->n_batch;
    engine->n_sessions = settings->n_sessions;
    engine->n_logits = settings->n_logits;
    engine->split = settings->split;
    engine->kv = (int32_t)settings->kv;
    engine->n_rules = (uint32_t)settings->n_rules;
    engine->n_adapters = (uint32_t)settings->n_adapters;
    memcpy(engine->rules, settings->rules, sizeof(engine->rules));
    engine->observe = settings->observe;
    engine->range_off = settings->range_off;
    return identity_of(model->gguf, &engine->file, error);
}

static enum status fill_adapters(const struct engine_settings *settings, struct remote_adapter **result,
                                 struct error *error)
{
    struct remote_adapter *adapters = calloc(settings->n_adapters + 1, sizeof(*adapters));
    enum status status = adapters == NULL ? error_memory(error, "the adapters") : STATUS_OK;
    for (size_t i = 0; i < settings->n_adapters && status == STATUS_OK; i++) {
        adapters[i].scale = settings->adapters[i].scale;
        fill_path(settings->adapters[i].path, adapters[i].path);
        status = identity_of_file(adapters[i].path, &adapters[i].file, error);
    }
    *result = adapters;
    return status;
}

static enum status send_engine(struct ranks *ranks, struct remote_engine *engine, struct remote_adapter *adapters,
                               struct error *error)
{
    enum status status = send_command(ranks, COMMAND_ENGINE, error);
    if (status == STATUS_OK)
        status = ranks_tell(ranks, engine, sizeof(*engine), false, error);
    for (size_t i = 0; status == STATUS_OK && i < engine->n_adapters; i++)
        status = ranks_tell(ranks, &adapters[i], sizeof(adapters[i]), false, error);
    return status == STATUS_OK ? ranks_agree(ranks, STATUS_OK, error) : status; // about the files
}

enum status remote_begin_engine(struct ranks *ranks, const struct mote_model *model,
                                const struct engine_settings *settings, struct error *error)
{
    struct remote_adapter *adapters = NULL;
    struct remote_engine *engine = calloc(1, sizeof(*engine));
    if (engine == NULL)
        return error_memory(error, "the engine");
    enum status status = fill_engine(model, settings, engine, error);
    if (status == STATUS_OK)
        status = fill_adapters(settings, &adapters, error);
    if (status == STATUS_OK)
        status = send_engine(ranks, engine, adapters, error);
    free(adapters);
    free(engine);
    return status;
}

void remote_end_engine(struct ranks *ranks)
{
    struct error error;
    if (!ranks->broken)
        send_command(ranks, COMMAND_END, &error);
}

// ---- a run as bytes ----

struct remote {
    struct word word;
    uint8_t *payload; // of the longest run
    size_t capacity;
    uint32_t *pages; // what the others' runs point to
};

enum status remote_allocate(struct mote_engine *engine, struct error *error)
{
    if (engine->ranks == NULL)
        return STATUS_OK;
    size_t n_pages = (engine->n_context + KV_PAGE_POSITIONS - 1) / KV_PAGE_POSITIONS, session, sessions, rows, scales;
    size_t n_sessions = engine->n_sessions < engine->n_batch ? engine->n_batch : engine->n_sessions;
    bool good = checked_mul_size(n_pages * engine->n_kinds + 1, sizeof(uint32_t), &session) &&
                checked_mul_size(n_sessions, session, &sessions) &&
                checked_mul_size(engine->n_batch, sizeof(struct row) + sizeof(uint32_t), &rows) &&
                checked_mul_size(engine->n_batch * sizeof(float), engine->n_adapters, &scales) && rows < SIZE_MAX / 4 &&
                scales < SIZE_MAX / 4 && sessions < SIZE_MAX / 4;
    // Sessions of one batch hold no more pages in all than there are: but a table is sent from its first page on.
    engine->remote = good ? calloc(1, sizeof(*engine->remote)) : NULL;
    if (engine->remote != NULL) {
        engine->remote->capacity = rows + scales + sessions;
        engine->remote->payload = malloc(engine->remote->capacity + INLINE_BYTES);
    }
    if (engine->remote == NULL || engine->remote->payload == NULL)
        return error_memory(error, "the ranks' runs");
    return STATUS_OK;
}

void remote_free(struct mote_engine *engine)
{
    if (engine->remote != NULL)
        free(engine->remote->payload);
    free(engine->remote);
}

// Page numbers of each session that rows of the run need: up to its last position.
static uint32_t pages_of_session(const struct run *run, uint32_t session)
{
    uint32_t n = 0;
    for (size_t i = 0; i < run->n_rows; i++) {
        uint32_t needed = run->rows[i].position / KV_PAGE_POSITIONS + 1;
        if (run->rows[i].session == session && needed > n)
            n = needed;
    }
    return n;
}

static uint8_t *append(uint8_t *at, const void *bytes, size_t size)
{
    memcpy(at, bytes, size);
    return at + size;
}

enum status remote_send_run(struct mote_engine *engine, const struct run *run, struct error *error)
{
    struct remote *remote = engine->remote;
    struct word *word = &remote->word;
    *word =
        (struct word){.command = COMMAND_RUN, .n_rows = (uint32_t)run->n_rows, .n_selected = (uint32_t)run->n_selected};
    for (size_t i = 0; i < run->n_rows; i++) {
        word->n_sessions = run->rows[i].session >= word->n_sessions ? run->rows[i].session + 1 : word->n_sessions;
        word->n_scales = run->rows[i].adapters >= word->n_scales ? run->rows[i].adapters + 1 : word->n_scales;
    }
    uint8_t *at = append(remote->payload, run->rows, run->n_rows * sizeof(*run->rows));
    at = append(at, run->selected, run->n_selected * sizeof(*run->selected));
    if (engine->n_adapters != 0)
        at = append(at, run->adapter_scales, word->n_scales * engine->n_adapters * sizeof(float));
    for (uint32_t s = 0; s < word->n_sessions; s++) {
        uint32_t n_pages = pages_of_session(run, s);
        at = append(at, &n_pages, sizeof(n_pages));
        for (uint32_t kind = 0; kind < engine->n_kinds; kind++)
            at = append(at, run->pages[s * MAX_KV_KINDS + kind], n_pages * sizeof(uint32_t));
    }
    word->payload = (uint64_t)(at - remote->payload);
    memcpy(word->bytes, remote->payload, word->payload < INLINE_BYTES ? word->payload : INLINE_BYTES);
    enum status status = send_word(engine->ranks, word, error);
    if (status == STATUS_OK && word->payload > INLINE_BYTES)
        status = ranks_tell(engine->ranks, remote->payload + INLINE_BYTES, word->payload - INLINE_BYTES, false, error);
    return status;
}

enum status remote_send_kv(struct mote_engine *engine, const struct kv_page *page, bool write, struct error *error)
{
    struct word word = {.command = write ? COMMAND_KV_WRITE : COMMAND_KV_READ, .page = *page};
    return send_word(engine->ranks, &word, error);
}

// ---- the other ranks ----

// Takes size bytes off the payload; NULL: there are not so many.
static uint8_t *take(const struct remote *remote, size_t *at, size_t size)
{
    if (size > remote->word.payload - *at)
        return NULL;
    *at += size;
    return remote->payload + *at - size;
}

// The numbers of a run that came, checked against what the engine holds, as a run.
static bool read_run(struct mote_engine *engine, struct run *run)
{
    struct remote *remote = engine->remote;
    const struct word *word = &remote->word;
    size_t at = 0;
    if (word->n_rows > engine->n_batch || word->n_selected > word->n_rows || word->n_sessions > engine->n_batch ||
        word->n_scales > engine->n_batch)
        return false;
    const uint8_t *rows = take(remote, &at, word->n_rows * sizeof(*engine->rows));
    const uint8_t *selected = take(remote, &at, word->n_selected * sizeof(*engine->selected));
    const uint8_t *scales = take(remote, &at, word->n_scales * engine->n_adapters * sizeof(float));
    if (rows == NULL || selected == NULL || scales == NULL)
        return false;
    memcpy(engine->rows, rows, word->n_rows * sizeof(*engine->rows));
    memcpy(engine->selected, selected, word->n_selected * sizeof(*engine->selected));
    if (engine->n_adapters != 0)
        memcpy(engine->adapter_scales, scales, word->n_scales * engine->n_adapters * sizeof(float));
    for (uint32_t s = 0; s < word->n_sessions; s++) {
        uint32_t n_pages;
        const uint8_t *count = take(remote, &at, sizeof(n_pages));
        if (count == NULL)
            return false;
        memcpy(&n_pages, count, sizeof(n_pages));
        for (uint32_t kind = 0; kind < engine->n_kinds; kind++) {
            uint8_t *pages = take(remote, &at, n_pages * sizeof(uint32_t));
            if (pages == NULL)
                return false;
            engine->pages[s * MAX_KV_KINDS + kind] = (const uint32_t *)(const void *)pages;
        }
    }
    *run = (struct run){.rows = engine->rows,
                        .n_rows = word->n_rows,
                        .selected = engine->selected,
                        .n_selected = word->n_selected,
                        .pages = engine->pages,
                        .adapter_scales = engine->adapter_scales,
                        .n_adapters = engine->n_adapters};
    return true;
}

static enum status follow_run(struct mote_engine *engine, struct error *error)
{
    struct remote *remote = engine->remote;
    const struct word *word = &remote->word;
    struct run run;
    if (word->payload > remote->capacity)
        return error_set(error, STATUS_INVALID, "rank 0 sent a run larger than the engine's: this is a bug of mote");
    memcpy(remote->payload, word->bytes, word->payload < INLINE_BYTES ? word->payload : INLINE_BYTES);
    if (word->payload > INLINE_BYTES) {
        enum status status =
            ranks_tell(engine->ranks, remote->payload + INLINE_BYTES, word->payload - INLINE_BYTES, false, error);
        if (status != STATUS_OK)
            return status;
    }
    if (!read_run(engine, &run))
        return error_set(error, STATUS_INVALID, "rank 0 sent a run that makes no sense: this is a bug of mote");
    struct fpenv saved = fpenv_enter();
    for (uint32_t i = 0; i < engine->graph.n_ropes; i++) {
        for (size_t row = 0; row < run.n_rows; row++)
            rope_fill(&engine->graph.ropes[i], run.rows[row].position,
                      engine->rope_tables[i] + row * engine->graph.ropes[i].n_rot);
        run.ropes[i] = engine->rope_tables[i];
    }
    enum status status = engine->device->ops->run(engine->plan, &run, error);
    fpenv_leave(saved);
    // What stopped a run on all ranks, rank 0 tells its user.
    return engine->ranks->broken ? status : STATUS_OK;
}

// What this rank keeps between commands.
struct follower {
    struct ranks *ranks;
    const mote_model_params *params;
    mote_model *model; // of the last engine: its weights are kept
    char path[PATH_MAX];
    mote_engine *engine;
};

static enum status open_model(struct follower *follower, const struct remote_engine *wanted, struct error *error)
{
    if (follower->model == NULL || strcmp(follower->path, wanted->path) != 0) {
        mote_model_close(follower->model);
        follower->model = NULL;
        enum status status =
            (enum status)mote_model_open(wanted->path, follower->params, &follower->model, (mote_error *)(void *)error);
        if (status != STATUS_OK)
            return status;
        memcpy(follower->path, wanted->path, sizeof(follower->path));
    }
    struct identity own;
    enum status status = identity_of(follower->model->gguf, &own, error);
    return status == STATUS_OK ? identity_check(wanted->path, &own, &wanted->file, error) : status;
}

static enum status check_adapters(const struct remote_adapter *adapters, uint32_t n, struct error *error)
{
    enum status status = STATUS_OK;
    for (uint32_t i = 0; i < n && status == STATUS_OK; i++) {
        struct identity own;
        status = identity_of_file(adapters[i].path, &own, error);
        if (status == STATUS_OK)
            status = identity_check(adapters[i].path, &own, &adapters[i].file, error);
    }
    return status;
}

static enum status receive_adapters(struct follower *follower, uint32_t n, struct remote_adapter **adapters,
                                    struct error *error)
{
    *adapters = calloc(n + 1, sizeof(**adapters));
    if (*adapters == NULL)
        return error_memory(error, "the adapters");
    for (uint32_t i = 0; i < n; i++) {
        enum status status = ranks_tell(follower->ranks, &(*adapters)[i], sizeof(**adapters), false, error);
        if (status != STATUS_OK)
            return status;
    }
    return STATUS_OK;
}

static void settings_of(const struct remote_engine *wanted, const struct ranks *ranks, const mote_adapter *adapters,
                        struct engine_settings *settings)
{
    *settings = (struct engine_settings){.asked_threads = (size_t)wanted->n_threads,
                                         .n_threads = engine_threads((size_t)wanted->n_threads, ranks),
                                         .n_context = (size_t)wanted->n_context,
                                         .n_batch = (size_t)wanted->n_batch,
                                         .n_sessions = (size_t)wanted->n_sessions,
                                         .n_logits = (size_t)wanted->n_logits,
                                         .kv = (enum kv_dtype)wanted->kv,
                                         .n_rules = wanted->n_rules,
                                         .observe = wanted->observe,
                                         .range_off = wanted->range_off,
                                         .isa = getenv("MOTE_ISA"),
                                         .split = wanted->split,
                                         .ranks = (struct ranks *)(uintptr_t)ranks,
                                         .adapters = adapters,
                                         .n_adapters = wanted->n_adapters};
    memcpy(settings->rules, wanted->rules, sizeof(settings->rules));
}

// Makes the engine that rank 0 makes. Where any rank cannot, all are told, and rank 0 tells its user; an error here is
// one that ends the ranks.
static enum status follow_engine(struct follower *follower, struct error *error)
{
    struct ranks *ranks = follower->ranks;
    struct remote_engine *wanted = calloc(1, sizeof(*wanted));
    struct remote_adapter *files = NULL;
    mote_adapter adapters[MAX_ADAPTERS];
    if (wanted == NULL)
        return error_memory(error, "the engine");
    enum status status = ranks_tell(ranks, wanted, sizeof(*wanted), false, error);
    if (status == STATUS_OK && wanted->n_adapters > MAX_ADAPTERS)
        status = error_set(error, STATUS_INVALID, "rank 0 has %u adapters: this is a bug of mote", wanted->n_adapters);
    if (status == STATUS_OK)
        status = receive_adapters(follower, wanted->n_adapters, &files, error);
    if (status == STATUS_OK) {
        enum status own = open_model(follower, wanted, error);
        own = own == STATUS_OK ? check_adapters(files, wanted->n_adapters, error) : own;
        status = ranks_agree(ranks, own, error);
    }
    for (uint32_t i = 0; status == STATUS_OK && i < wanted->n_adapters; i++)
        adapters[i] = (mote_adapter){.path = files[i].path, .scale = files[i].scale};
    if (status == STATUS_OK) {
        struct engine_settings settings;
        settings_of(wanted, ranks, adapters, &settings);
        status = engine_create_settled(follower->model, &settings, NULL, &follower->engine, error);
    }
    free(files);
    free(wanted);
    return ranks->broken ? status : STATUS_OK;
}

static enum status follow(struct follower *follower, struct word *word, struct error *error)
{
    if (word->command == COMMAND_ENGINE) {
        mote_engine_destroy(follower->engine);
        follower->engine = NULL;
        return follow_engine(follower, error);
    }
    if (word->command == COMMAND_END) {
        mote_engine_destroy(follower->engine);
        follower->engine = NULL;
        return STATUS_OK;
    }
    bool copies = word->command == COMMAND_KV_READ || word->command == COMMAND_KV_WRITE;
    if (copies && follower->engine != NULL && word->page.layer < follower->engine->graph.graph.n_kv_layers)
        return follower->engine->device->ops->kv_copy(follower->engine->plan, &word->page, NULL,
                                                      word->command == COMMAND_KV_WRITE, error);
    if (word->command != COMMAND_RUN || follower->engine == NULL)
        return error_set(error, STATUS_INVALID, "rank 0 sent command %u, which makes no sense: this is a bug of mote",
                         word->command);
    follower->engine->remote->word = *word;
    return follow_run(follower->engine, error);
}

// ---- the public calls ----

mote_status mote_ranks_join(mote_ranks **ranks, mote_error *error)
{
    *ranks = NULL;
    if (ranks_launched() == 1)
        return MOTE_OK;
    struct ranks *joined = NULL;
    struct ranks_hello hello = {.numerics = mote_numerics_version(),
                                .protocol = PROTOCOL,
                                .layout = (uint64_t)sizeof(struct remote_engine) << 32 | sizeof(struct word)};
    strncpy(hello.version, mote_version(), sizeof(hello.version) - 1);
    enum status status = ranks_join(&joined, inner_error(error));
    if (status == STATUS_OK)
        status = ranks_greet(joined, &hello, inner_error(error));
    if (status != STATUS_OK && joined != NULL && !joined->broken && joined->module.rank != 0 && error != NULL)
        error->message[0] = '\0'; // rank 0 says the same
    *ranks = (mote_ranks *)(void *)joined;
    return (mote_status)status;
}

size_t mote_ranks_rank(const mote_ranks *ranks)
{
    return ((const struct ranks *)(const void *)ranks)->module.rank;
}

size_t mote_ranks_count(const mote_ranks *ranks)
{
    return ((const struct ranks *)(const void *)ranks)->module.n_ranks;
}

mote_status mote_ranks_serve(mote_ranks *handle, const mote_model_params *params, mote_error *error)
{
    struct follower follower = {.ranks = (struct ranks *)(void *)handle, .params = params};
    struct word *word = calloc(1, sizeof(*word));
    if (word == NULL)
        return (mote_status)error_memory(inner_error(error), "the rank");
    enum status status = STATUS_OK;
    while (status == STATUS_OK) {
        status = ranks_tell(follower.ranks, word, sizeof(*word), true, inner_error(error));
        if (status == STATUS_OK && word->command == COMMAND_LEAVE)
            break;
        if (status == STATUS_OK)
            status = follow(&follower, word, inner_error(error));
    }
    mote_engine_destroy(follower.engine);
    mote_model_close(follower.model);
    free(word);
    return (mote_status)status;
}

void mote_ranks_leave(mote_ranks *handle, bool good)
{
    struct ranks *ranks = (struct ranks *)(void *)handle;
    struct error error;
    if (ranks == NULL)
        return;
    if (good && ranks->module.rank == 0 && !ranks->broken)
        send_command(ranks, COMMAND_LEAVE, &error);
    ranks_leave(ranks, good);
}
