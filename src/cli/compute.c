#include "compute.h"

#include "output.h"
#include "signals.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { THREADS_MAX = 1024, BATCH_MAX = 65536, CONTEXT_MAX = 1 << 24, DEVICES_MAX = 8, BAR_WIDTH = 20, LINE_WIDTH = 78 };

#define LINE(kind, names, argument, help, member) OPTION(kind, names, argument, help, struct compute_options, member)
#define KV_TYPES "f16 f32 q8_0"

#define THREADS_LINE                                                                                                   \
    {                                                                                                                  \
        LINE(INTEGER, "-t --threads", "N",                                                                             \
             "threads (default: as many as this process may use); no answer depends on it", threads),                  \
            .least = 1, .most = THREADS_MAX                                                                            \
    }

static const struct option size_options[] = {
    {LINE(INTEGER, "-c --ctx-size", "N", "tokens of context (0: as many as the model was trained for)", context),
     .least = 0, .most = CONTEXT_MAX},
    {LINE(INTEGER, "-b --batch --batch-size", "N",
          "prompt tokens that go through the model together (default 512); no answer depends on it", batch),
     .least = 1, .most = BATCH_MAX},
    {.kind = OPTION_END},
};

static const struct option other_options[] = {
    {LINE(ADAPTERS, "--lora", "FILE[:SCALE]",
          "an adapter (LoRA, GGUF), and how much of it (default 1); may be given several times", lora)},
    {LINE(TEXT, "--pre", "NAME", "the pre-tokenizer to use, whatever the file says", pre)},
    {LINE(FLAG, "--force", NULL, "go on where more memory is needed than is free", force)},
    {LINE(FLAG, "-v --verbose", NULL, "say what is done and how long it took, also where standard error is no terminal",
          verbose)},
    {.kind = OPTION_END},
};

static const struct option mesh_options[] = {
    {LINE(INTEGER, "--devices", "N|numa",
          "groups of this machine's cores that share every layer (default 1; numa: one a NUMA node); no answer depends "
          "on it",
          devices),
     .least = 1, .most = DEVICES_MAX, .choices = "numa"},
    {LINE(NUMBERS, "-ts --split --tensor-split", "A,B,…", "the devices' shares, rounded to eighths (default: even)",
          split),
     .low = 0, .high = 1e9},
    {.kind = OPTION_END},
};

const struct option compute_options_table[] = {
    THREADS_LINE,
    {.kind = OPTION_TABLE, .table = compute_options_but_threads},
    {.kind = OPTION_END},
};

const struct option compute_options_but_precision[] = {
    THREADS_LINE,
    {.kind = OPTION_TABLE, .table = size_options},
    {.kind = OPTION_TABLE, .table = mesh_options},
    {.kind = OPTION_TABLE, .table = other_options},
    {.kind = OPTION_END},
};

const struct option compute_options_but_threads[] = {
    {.kind = OPTION_TABLE, .table = size_options},
    {LINE(
         CHOICES, "--precision", "P,KIND=P…",
         "what sources of products are rounded to: default, f32 (with the KV cache, for reference), bf16, f16, q8; for "
         "all, or for a kind of tensor: attn=f32,ffn_down=bf16",
         precision),
     .choices = "default f32 bf16 f16 q8"},
    {LINE(CHOICE, "--kv", "f16|f32|q8_0", "dtype of the KV cache (default f16)", kv), .choices = KV_TYPES},
    {LINE(CHOICE, "-ctk --cache-type-k", "TYPE", "as --kv: keys and values have one dtype", kv_keys),
     .choices = KV_TYPES},
    {LINE(CHOICE, "-ctv --cache-type-v", "TYPE", "as --kv: keys and values have one dtype", kv_values),
     .choices = KV_TYPES},
    {.kind = OPTION_TABLE, .table = mesh_options},
    {.kind = OPTION_TABLE, .table = other_options},
    {.kind = OPTION_END},
};
const struct compute_options compute_options_default = {.context = -1};

static mote_ranks *ranks; // what a launcher made of this process, once

mote_status compute_join_ranks(bool *serve, mote_error *error)
{
    mote_status status = mote_ranks_join(&ranks, error);
    *serve = status == MOTE_OK && ranks && mote_ranks_rank(ranks) != 0;
    return status;
}

mote_status compute_serve_ranks(mote_error *error)
{
    return mote_ranks_serve(ranks, NULL, error);
}

void compute_leave_ranks(bool good)
{
    mote_ranks_leave(ranks, good);
    ranks = NULL;
}

double seconds_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

// ---- progress

void progress_begin(struct progress *progress, const char *label)
{
    *progress = (struct progress){.label = label, .live = is_live_terminal(stderr), .started = seconds_now()};
}

void progress_show(struct progress *progress, double share, const char *words)
{
    // What takes no time to speak of shows no bar, and a bar is drawn no oftener than a person sees.
    double now = seconds_now();
    if (!progress->live || now - progress->started < 0.2 || now - progress->drawn < 0.05) {
        return;
    }
    progress->drawn = now;
    progress->shown = true;
    char bar[BAR_WIDTH + 1];
    for (int i = 0; i < BAR_WIDTH; i++) {
        bar[i] = (double)i < share * BAR_WIDTH ? '#' : '.';
    }
    bar[BAR_WIDTH] = '\0';
    char line[LINE_WIDTH + 1];
    snprintf(line, sizeof line, "%s [%s] %3.0f%% %s", progress->label, bar, 100 * share, words);
    fprintf(stderr, "\r%-*s", LINE_WIDTH, line);
    fflush(stderr);
}

int progress_update(void *user, uint64_t done, uint64_t total)
{
    progress_show(user, total ? (double)done / (double)total : 1, "");
    return signals_caught();
}

void progress_end(struct progress *progress)
{
    if (progress->shown) {
        fprintf(stderr, "\r%*s\r", LINE_WIDTH, "");
        fflush(stderr);
    }
    progress->shown = false;
}

// ---- models and engines

bool compute_talks(const struct compute_options *options)
{
    return options->verbose || isatty(STDERR_FILENO);
}

static void log_to_stderr(void *user, mote_log_level level, const char *message)
{
    (void)user;
    static const char *const names[] = {[MOTE_DEBUG] = "debug", [MOTE_INFO] = "info", [MOTE_WARNING] = "warning"};
    fprintf(stderr, "mote: %s: ", names[level]);
    print_escaped(stderr, message, strlen(message));
    fputc('\n', stderr);
}

// Without -v only warnings are worth a line.
static void log_warnings(void *user, mote_log_level level, const char *message)
{
    if (level == MOTE_WARNING) {
        log_to_stderr(user, level, message);
    }
}

mote_status compute_open_model(const char *path, const struct compute_options *options, mote_model **model,
                               mote_error *error)
{
    mote_model_params params;
    mote_model_params_default(&params);
    params.pre = options->pre;
    params.log = options->verbose ? log_to_stderr : log_warnings;
    return mote_model_open(path, &params, model, error);
}

static mote_status set_kv(const struct compute_options *options, mote_kv *kv, mote_error *error)
{
    static const struct {
        const char *name;
        mote_kv kv;
    } types[] = {{"f16", MOTE_KV_F16}, {"f32", MOTE_KV_F32}, {"q8_0", MOTE_KV_Q8_0}};
    const char *given[] = {options->kv, options->kv_keys, options->kv_values}, *name = NULL;
    for (size_t i = 0; i < sizeof given / sizeof given[0]; i++) {
        if (name && given[i] && strcmp(name, given[i]) != 0) {
            *error = (mote_error){.status = MOTE_UNSUPPORTED};
            snprintf(error->message, sizeof error->message,
                     "keys and values of the KV cache have one dtype: %s and %s were asked for; give one of them", name,
                     given[i]);
            return error->status;
        }
        name = given[i] ? given[i] : name;
    }
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        if (name && strcmp(name, types[i].name) == 0) {
            *kv = types[i].kv;
        }
    }
    return MOTE_OK;
}

static void set_devices(const struct compute_options *options, mote_engine_params *params)
{
    params->numa = options->devices < 0;
    params->n_devices = options->devices > 0 ? (size_t)options->devices : 0;
    params->split = options->split.values;
    params->n_split = options->split.count;
    params->ranks = ranks;
}

mote_status compute_params(const mote_model *model, const struct compute_options *options, mote_engine_params *params,
                           mote_error *error)
{
    mote_engine_params_default(params);
    params->n_threads = (size_t)options->threads;
    params->n_batch = (size_t)options->batch;
    params->force = options->force;
    params->precision = options->precision;
    params->adapters = options->lora.values;
    params->n_adapters = options->lora.count;
    if (options->context > 0) {
        params->n_context = (size_t)options->context;
    } else if (options->context == 0) {
        params->n_context = mote_model_n_context(model);
    }
    const char *isa = getenv("MOTE_ISA");
    params->isa = isa && isa[0] ? isa : NULL;
    set_devices(options, params);
    return set_kv(options, &params->kv, error);
}

mote_status compute_open(struct compute *compute, const char *path, const struct compute_options *options,
                         mote_error *error)
{
    memset(compute, 0, sizeof *compute);
    mote_status status = compute_open_model(path, options, &compute->model, error);
    if (status == MOTE_OK) {
        status = compute_params(compute->model, options, &compute->params, error);
    }
    return status;
}

mote_status compute_load(struct compute *compute, mote_error *error)
{
    progress_begin(&compute->progress, "loading");
    compute->params.progress = progress_update;
    compute->params.progress_user = &compute->progress;
    mote_status status = mote_engine_create(compute->model, &compute->params, &compute->engine, error);
    progress_end(&compute->progress);
    compute->load_seconds = seconds_now() - compute->progress.started;
    if (status == MOTE_OK) {
        signals_cancel_engine(0, compute->engine);
    }
    return status;
}

void compute_close(struct compute *compute)
{
    signals_cancel_engine(0, NULL);
    mote_engine_destroy(compute->engine);
    mote_model_close(compute->model);
    memset(compute, 0, sizeof *compute);
}
