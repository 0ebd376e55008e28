// mote bench: how fast a model runs here, and how far that is from what the machine could do.
#include "bench.h"

#include "commands.h"
#include "compute.h"
#include "input.h"
#include "output.h"
#include "signals.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { TOKENS_MAX = 1 << 24, REPETITIONS_MAX = 1000, THREADS_MAX = 1024, BATCH_DEFAULT = 512 };

struct bench_options {
    struct compute_options compute;
    struct texts models;
    struct integers threads, prompts, generations, depths;
    int64_t repetitions;
    const char *format;
    bool machine;
};

static const struct option bench_table[] = {
    {OPTION(TEXTS, "-m --model", "FILE", "a model (or as arguments); several may be given", struct bench_options,
            models)},
    {OPTION(INTEGERS, "-p --n-prompt", "N,…", "prompt lengths (default 512; 0: none)", struct bench_options, prompts),
     .least = 0, .most = TOKENS_MAX},
    {OPTION(INTEGERS, "-n --n-gen", "N,…", "tokens to generate (default 128; 0: none)", struct bench_options,
            generations),
     .least = 0, .most = TOKENS_MAX},
    {OPTION(INTEGERS, "-d --n-depth", "N,…", "tokens that are in the context already (default 0)", struct bench_options,
            depths),
     .least = 0, .most = TOKENS_MAX},
    {OPTION(INTEGER, "-r --repetitions", "N", "measure each N times (default 5), after a warm-up", struct bench_options,
            repetitions),
     .least = 1, .most = REPETITIONS_MAX},
    {OPTION(INTEGERS, "-t --threads", "N,…", "threads (default: as many as this process may use)", struct bench_options,
            threads),
     .least = 1, .most = THREADS_MAX},
    {OPTION(CHOICE, "-o --output", "md|csv|json", "the form of the result (default md)", struct bench_options, format),
     .choices = "md csv json"},
    {OPTION(FLAG, "--machine", NULL, "measure this machine's limits alone", struct bench_options, machine)},
    {.kind = OPTION_TABLE, .table = compute_options_but_threads, .offset = offsetof(struct bench_options, compute)},
    {.kind = OPTION_END},
};

struct bench { // what is being measured now
    const struct bench_options *options;
    enum bench_format format;
    struct compute compute;
    mote_machine machines[OPTION_LIST_MAX]; // the limits with each number of threads
    bool measured[OPTION_LIST_MAX];         // those are known
    const mote_machine *machine;            // of the engine that is measured now
    mote_session *session;
    int32_t *tokens; // what is run: any tokens do
    struct bench_result result;
    bool printed; // a result was
};

static int ignore_row(void *user, size_t input, size_t index, const float *logits)
{
    (void)user;
    (void)input;
    (void)index;
    (void)logits;
    return signals_caught();
}

static mote_status run(struct bench *bench, const int32_t *tokens, size_t count, mote_error *error)
{
    mote_input input = {.session = bench->session, .tokens = tokens, .n_tokens = count, .want = MOTE_WANT_LAST};
    mote_status status = mote_engine_run(bench->compute.engine, &input, 1, ignore_row, NULL, error);
    return status == MOTE_OK && signals_caught() ? set_error(error, MOTE_CANCELLED, "interrupted") : status;
}

// Fills the context up to the depth, then runs the test; *seconds is what the test took.
static mote_status measure_once(struct bench *bench, double *seconds, mote_error *error)
{
    const struct bench_result *result = &bench->result;
    mote_session_clear(bench->session);
    mote_status status = result->n_depth ? run(bench, bench->tokens, result->n_depth, error) : MOTE_OK;
    double started = seconds_now();
    if (status == MOTE_OK && result->n_prompt > 0) {
        status = run(bench, bench->tokens + result->n_depth, result->n_prompt, error);
    }
    for (size_t i = 0; status == MOTE_OK && i < result->n_generated; i++) {
        status = run(bench, bench->tokens + result->n_depth + i, 1, error);
    }
    *seconds = seconds_now() - started;
    return status;
}

// Tokens a second that this machine could reach: memory and arithmetic at their measured limits, overlapped.
static void find_limit(struct bench *bench)
{
    struct bench_result *result = &bench->result;
    size_t n = result->n_prompt + result->n_generated;
    size_t step = result->n_prompt ? result->n_batch : 1;
    double memory = 0, arithmetic = 0;
    for (size_t i = 0; i < n; i += step) {
        mote_cost cost;
        mote_engine_cost(bench->compute.engine, n - i < step ? n - i : step, result->n_depth + i, &cost);
        memory += cost.bytes / bench->machine->read_bytes;
        arithmetic += cost.int8_ops / bench->machine->int8_ops + cost.f32_ops / bench->machine->f32_ops;
    }
    result->bound = memory > arithmetic ? BOUND_MEMORY : BOUND_COMPUTE;
    double seconds = memory > arithmetic ? memory : arithmetic;
    result->limit = seconds > 0 ? (double)n / seconds : 0;
}

static void average(struct bench_result *result)
{
    double sum = 0, squares = 0;
    double n = (double)result->repetitions, tokens = (double)(result->n_prompt + result->n_generated);
    for (size_t i = 0; i < result->repetitions; i++) {
        sum += tokens / result->seconds[i];
    }
    result->mean = sum / n;
    for (size_t i = 0; i < result->repetitions; i++) {
        double off = tokens / result->seconds[i] - result->mean;
        squares += off * off;
    }
    result->deviation = n > 1 ? sqrt(squares / (n - 1)) : 0;
}

static mote_status measure_test(struct bench *bench, size_t n_prompt, size_t n_generated, size_t n_depth,
                                mote_error *error)
{
    double seconds[REPETITIONS_MAX], warm_up;
    size_t n = (size_t)bench->options->repetitions;
    bench->result.n_prompt = n_prompt;
    bench->result.n_generated = n_generated;
    bench->result.n_depth = n_depth;
    bench->result.repetitions = n;
    bench->result.seconds = seconds;
    struct progress progress;
    progress_begin(&progress, n_prompt ? "prompt" : "generation");
    mote_stats before = {0}, after = {0};
    double all_seconds = 0;
    mote_status status = measure_once(bench, &warm_up, error);
    mote_engine_stats(bench->compute.engine, &before);
    for (size_t i = 0; status == MOTE_OK && i < n; i++) {
        progress_update(&progress, i + 1, n + 1);
        status = measure_once(bench, &seconds[i], error);
        all_seconds += seconds[i];
    }
    mote_engine_stats(bench->compute.engine, &after);
    double n_tokens = (double)(n * (n_prompt + n_generated));
    bench->result.n_devices = mote_engine_n_devices(bench->compute.engine);
    bench->result.collectives = n_tokens > 0 ? (double)(after.collectives - before.collectives) / n_tokens : 0;
    bench->result.collectives_share =
        all_seconds > 0 ? (after.collective_seconds - before.collective_seconds) / all_seconds : 0;
    progress_end(&progress);
    if (status == MOTE_OK) {
        average(&bench->result);
        find_limit(bench);
        bench_print(bench->format, &bench->result, !bench->printed);
        bench->printed = true;
    }
    bench->result.seconds = NULL;
    return status;
}

static mote_status measure_tests(struct bench *bench, mote_error *error)
{
    const struct bench_options *options = bench->options;
    mote_status status = MOTE_OK;
    for (size_t d = 0; d < options->depths.count; d++) {
        size_t depth = (size_t)options->depths.values[d];
        for (size_t i = 0; status == MOTE_OK && i < options->prompts.count; i++) {
            if (options->prompts.values[i] > 0) {
                status = measure_test(bench, (size_t)options->prompts.values[i], 0, depth, error);
            }
        }
        for (size_t i = 0; status == MOTE_OK && i < options->generations.count; i++) {
            if (options->generations.values[i] > 0) {
                status = measure_test(bench, 0, (size_t)options->generations.values[i], depth, error);
            }
        }
    }
    return status;
}

static size_t greatest(const struct integers *integers)
{
    int64_t most = 0;
    for (size_t i = 0; i < integers->count; i++) {
        most = integers->values[i] > most ? integers->values[i] : most;
    }
    return (size_t)most;
}

// ---- engines

// Tokens that differ, as those of a text do; the same ones in every run.
static mote_status make_tokens(struct bench *bench, size_t count, mote_error *error)
{
    size_t n_vocab = mote_model_n_vocab(bench->compute.model);
    bench->tokens = malloc(count * sizeof *bench->tokens);
    if (!bench->tokens) {
        return set_error(error, MOTE_MEMORY, "out of memory");
    }
    uint64_t state = 1;
    for (size_t i = 0; i < count; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        bench->tokens[i] = (int32_t)((state >> 33) % n_vocab);
    }
    return MOTE_OK;
}

static double describe_number(mote_model *model, mote_description what, const char *key)
{
    char *text = NULL;
    double number = 0;
    if (mote_model_describe(model, what, NULL, &text, NULL) == MOTE_OK) {
        json_t *value = json_loads(text, JSON_ALLOW_NUL, NULL);
        number = json_number_value(json_object_get(value, key));
        json_decref(value);
    }
    mote_free(text);
    return number;
}

// The machine's limits with the index-th number of threads: measured once, whatever the number of models.
static mote_status find_machine(struct bench *bench, size_t index, mote_error *error)
{
    bench->machine = &bench->machines[index];
    if (bench->measured[index]) {
        return MOTE_OK;
    }
    mote_status status =
        mote_machine_measure(bench->result.n_threads, bench->result.isa, &bench->machines[index], error);
    bench->measured[index] = status == MOTE_OK;
    return status;
}

// One engine: a model with the index-th number of threads (0: as many as there are).
static mote_status measure_engine(struct bench *bench, size_t index, mote_error *error)
{
    static const char *const kv_names[] = {[MOTE_KV_F32] = "f32", [MOTE_KV_F16] = "f16", [MOTE_KV_Q8_0] = "q8_0"};
    mote_engine_params *params = &bench->compute.params;
    params->n_threads = (size_t)bench->options->threads.values[index];
    mote_status status = compute_load(&bench->compute, error);
    if (status == MOTE_OK) {
        status = mote_session_create(bench->compute.engine, &bench->session, error);
    }
    if (status == MOTE_OK) {
        bench->result.isa = mote_engine_isa(bench->compute.engine);
        bench->result.n_threads = mote_engine_n_threads(bench->compute.engine);
        bench->result.precision = params->precision ? params->precision : "default";
        bench->result.kv = kv_names[mote_engine_kv(bench->compute.engine)];
        bench->result.n_batch = params->n_batch ? params->n_batch : BATCH_DEFAULT;
        status = find_machine(bench, index, error);
    }
    if (status == MOTE_OK) {
        status = measure_tests(bench, error);
    }
    signals_cancel_engine(0, NULL);
    mote_session_destroy(bench->session);
    mote_engine_destroy(bench->compute.engine);
    bench->session = NULL;
    bench->compute.engine = NULL;
    return status;
}

static mote_status measure_model(struct bench *bench, const char *path, mote_error *error)
{
    const struct bench_options *options = bench->options;
    size_t longest = greatest(&options->depths) + (greatest(&options->prompts) > greatest(&options->generations)
                                                       ? greatest(&options->prompts)
                                                       : greatest(&options->generations));
    mote_status status = compute_open(&bench->compute, path, &options->compute, error);
    if (status == MOTE_OK && bench->compute.params.n_context == 0) {
        bench->compute.params.n_context = longest;
    }
    if (status == MOTE_OK && bench->compute.params.n_context < longest) {
        status = set_error(error, MOTE_FULL, "tests of %zu tokens do not fit into a context of %zu: leave out -c",
                           longest, bench->compute.params.n_context);
    }
    if (status == MOTE_OK) {
        bench->result.model = path;
        bench->result.model_bytes = describe_number(bench->compute.model, MOTE_METADATA, "size");
        bench->result.parameters = describe_number(bench->compute.model, MOTE_MODEL, "parameters");
    }
    for (size_t i = 0; status == MOTE_OK && i < options->threads.count; i++) {
        if (!bench->tokens && mote_model_n_vocab(bench->compute.model) > 0) {
            status = make_tokens(bench, longest, error);
        }
        if (status == MOTE_OK) {
            status = measure_engine(bench, i, error);
        }
    }
    free(bench->tokens);
    bench->tokens = NULL;
    compute_close(&bench->compute);
    return status;
}

static int measure_machine(const struct bench_options *options, enum bench_format format)
{
    const char *isa = getenv("MOTE_ISA");
    for (size_t i = 0; i < options->threads.count; i++) {
        mote_machine machine;
        mote_error error = {0};
        size_t n_threads = (size_t)options->threads.values[i];
        if (mote_machine_measure(n_threads, isa && isa[0] ? isa : NULL, &machine, &error) != MOTE_OK) {
            return fail(&error);
        }
        bench_print_machine(format, &machine, n_threads);
    }
    return EXIT_DONE;
}

static void set_default(struct integers *integers, int64_t value)
{
    if (integers->count == 0) {
        integers->values[integers->count++] = value;
    }
}

static int bench_main(int argc, char **argv)
{
    struct bench_options options = {.compute = compute_options_default, .repetitions = 5};
    struct positionals positionals;
    int exit_code;
    if (!options_parse(&command_bench, argc, argv, &options, &positionals, &exit_code)) {
        return exit_code;
    }
    for (size_t i = 0; i < positionals.count && options.models.count < OPTION_LIST_MAX; i++) {
        options.models.values[options.models.count++] = positionals.values[i];
    }
    set_default(&options.prompts, 512);
    set_default(&options.generations, 128);
    set_default(&options.depths, 0);
    set_default(&options.threads, 0);
    enum bench_format format = !options.format || strcmp(options.format, "md") == 0 ? BENCH_MD
                               : strcmp(options.format, "csv") == 0                 ? BENCH_CSV
                                                                                    : BENCH_JSON;
    if (options.machine) {
        return options.models.count ? usage_error(&command_bench, "--machine measures no model: leave it out")
                                    : measure_machine(&options, format);
    }
    if (options.models.count == 0) {
        return usage_error(&command_bench, "which model? Give a GGUF file, or --machine");
    }
    if (greatest(&options.prompts) == 0 && greatest(&options.generations) == 0) {
        return usage_error(&command_bench, "-p 0 and -n 0 leave nothing to measure");
    }
    struct bench bench = {.options = &options, .format = format};
    mote_error error = {0};
    mote_status status = MOTE_OK;
    bench_print_begin(format);
    for (size_t i = 0; status == MOTE_OK && i < options.models.count; i++) {
        status = measure_model(&bench, options.models.values[i], &error);
    }
    bench_print_end(format);
    return status == MOTE_OK ? EXIT_DONE : fail(&error);
}

const struct command command_bench = {
    .name = "bench",
    .summary = "measure speed, and how far it is from this machine's limits",
    .arguments = "MODEL …",
    .details =
        "Measures the speed of prompts (pp) and of generation (tg): mean ± standard deviation of tokens a second,\n"
        "and the share of what this machine's memory and arithmetic, measured in the same run, would allow.\n"
        "\n"
        "  mote bench MODEL.gguf\n"
        "  mote bench MODEL.gguf -t 1,2 -p 512 -n 64,128 -d 0,4096 -o csv\n"
        "  mote bench --machine",
    .options = bench_table,
    .max_positionals = OPTION_LIST_MAX,
    .main = bench_main,
};
