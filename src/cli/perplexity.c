// mote perplexity: how well a model foresees a text.
//
// By default as llama.cpp has it: the text, with BOS where the model adds one, is cut into chunks of n_ctx tokens (what
// is left over is not used); in each chunk the first token is replaced by BOS where the model adds one; tokens n_ctx/2
// + 1 to n_ctx - 1 are scored, each after all that stands before it in the chunk. The result is exp of the mean of
// their negative log-likelihoods, its error exp(mean) times the standard error of that mean. With --whole: one pass
// over the whole text, all tokens but the first are scored.
#include "commands.h"
#include "compute.h"
#include "input.h"
#include "output.h"
#include "score.h"
#include "signals.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { CHUNK_DEFAULT = 512, COMPARED_ROWS = 32 };

struct perplexity_options {
    struct compute_options compute;
    const char *model, *file, *tokens, *compare;
    int64_t chunks; // 0: all
    bool whole, special, json;
};

static const struct option perplexity_table[] = {
    {OPTION(TEXT, "-m --model", "FILE", "the model (or the first argument)", struct perplexity_options, model)},
    {OPTION(TEXT, "-f --file", "FILE", "the text (-: standard input), without its last newline",
            struct perplexity_options, file)},
    {OPTION(TEXT, "--tokens", "FILE", "token ids instead of a text: as text, or a GGUF file with a tensor tokens",
            struct perplexity_options, tokens)},
    {OPTION(INTEGER, "--chunks", "N", "use the first N chunks only", struct perplexity_options, chunks), .least = 1,
     .most = INT32_MAX},
    {OPTION(FLAG, "--whole", NULL, "one pass over the whole text, scoring every token but the first",
            struct perplexity_options, whole)},
    {OPTION(CHOICE, "--compare", "f32",
            "compare with the same model in F32: KL divergence and agreement of the best "
            "token",
            struct perplexity_options, compare),
     .choices = "f32"},
    {OPTION(FLAG, "--special", NULL, "recognise special tokens in the text", struct perplexity_options, special)},
    {OPTION(FLAG, "--json", NULL, "print the result as JSON", struct perplexity_options, json)},
    COMPUTE_OPTIONS(struct perplexity_options, compute),
    {.kind = OPTION_END},
};

struct side { // one engine, and what it has made of the text so far
    mote_engine *engine;
    mote_session *session;
    struct mean nll;
};

struct measurement {
    size_t n_vocab;
    struct side side;
    struct side reference; // engine NULL: no comparison
    float *rows;           // [COMPARED_ROWS][n_vocab]: the side's logits, until the reference's come
    struct mean kl;
    double most_kl;
    size_t n_same_best;
    const int32_t *next; // the tokens that follow the rows of this run
    size_t n_scored;     // how many rows of this run are scored
    struct progress progress;
    size_t n_done, n_total; // scored tokens
};

// ---- rows of logits as they come

static int show_progress(struct measurement *measurement)
{
    char words[64];
    double elapsed = seconds_now() - measurement->progress.started;
    double share = (double)measurement->n_done / (double)measurement->n_total;
    double left = share > 0 ? elapsed * (1 - share) / share : 0;
    snprintf(words, sizeof words, "%.0f s left, PPL %.4f", left, exp(mean_value(&measurement->side.nll)));
    progress_show(&measurement->progress, share, words);
    return signals_caught();
}

static int score_row(void *user, size_t input, size_t index, const float *logits)
{
    (void)input;
    struct measurement *measurement = user;
    if (index >= measurement->n_scored) {
        return signals_caught(); // the last token of a chunk foretells nothing that is known
    }
    size_t next = (size_t)measurement->next[index];
    mean_add(&measurement->side.nll, score_nll(logits, measurement->n_vocab, next));
    measurement->n_done++;
    if (measurement->reference.engine) {
        memcpy(measurement->rows + index * measurement->n_vocab, logits, measurement->n_vocab * sizeof *logits);
    }
    return show_progress(measurement);
}

static int compare_row(void *user, size_t input, size_t index, const float *logits)
{
    (void)input;
    struct measurement *measurement = user;
    size_t n_vocab = measurement->n_vocab;
    if (index >= measurement->n_scored) {
        return signals_caught();
    }
    const float *row = measurement->rows + index * n_vocab;
    mean_add(&measurement->reference.nll, score_nll(logits, n_vocab, (size_t)measurement->next[index]));
    double kl = score_kl(logits, row, n_vocab);
    mean_add(&measurement->kl, kl);
    measurement->most_kl = kl > measurement->most_kl ? kl : measurement->most_kl;
    measurement->n_same_best += score_best(logits, n_vocab) == score_best(row, n_vocab);
    return show_progress(measurement);
}

// Runs tokens [0, count) on both sides. next: NULL, or what follows each of them; the first n_scored rows are scored.
static mote_status run_tokens(struct measurement *measurement, const int32_t *tokens, size_t count, size_t n_scored,
                              mote_error *error)
{
    struct side *sides[] = {&measurement->side, &measurement->reference};
    mote_logits_fn functions[] = {score_row, compare_row};
    measurement->next = tokens + 1;
    measurement->n_scored = n_scored;
    for (size_t i = 0; i < 2 && sides[i]->engine; i++) {
        mote_input input = {.session = sides[i]->session,
                            .tokens = tokens,
                            .n_tokens = count,
                            .want = n_scored ? MOTE_WANT_ALL : MOTE_WANT_NONE};
        mote_status status = mote_engine_run(sides[i]->engine, &input, 1, functions[i], measurement, error);
        if (status != MOTE_OK) {
            return status;
        }
        if (signals_caught()) {
            return set_error(error, MOTE_CANCELLED, "interrupted");
        }
    }
    return MOTE_OK;
}

// One chunk of n tokens; logits from token `first` on foretell tokens first + 1 to n - 1.
static mote_status measure_chunk(struct measurement *measurement, const int32_t *tokens, size_t n, size_t first,
                                 mote_error *error)
{
    mote_session_clear(measurement->side.session);
    if (measurement->reference.engine) {
        mote_session_clear(measurement->reference.session);
    }
    mote_status status = MOTE_OK;
    if (first > 0) {
        status = run_tokens(measurement, tokens, first, 0, error);
    }
    // Where two sides are compared, rows are held in between: some at a time. The last token need not run.
    size_t last = n - 1;
    size_t step = measurement->reference.engine ? COMPARED_ROWS : last - first;
    for (size_t i = first; status == MOTE_OK && i < last; i += step) {
        size_t count = last - i < step ? last - i : step;
        status = run_tokens(measurement, tokens + i, count, count, error);
    }
    return status;
}

static mote_status measure(const struct perplexity_options *options, mote_model *model, struct measurement *measurement,
                           struct ids *ids, size_t n_chunk, mote_error *error)
{
    int32_t bos, eos;
    bool adds_bos, adds_eos;
    mote_status status = mote_token_specials(model, &bos, &eos, &adds_bos, &adds_eos, error);
    size_t n_chunks = ids->count / n_chunk;
    if (options->chunks > 0 && (size_t)options->chunks < n_chunks) {
        n_chunks = (size_t)options->chunks;
    }
    size_t first = options->whole ? 0 : n_chunk / 2;
    measurement->n_total = n_chunks * (n_chunk - 1 - first);
    progress_begin(&measurement->progress, "measuring");
    for (size_t i = 0; status == MOTE_OK && i < n_chunks; i++) {
        int32_t *tokens = ids->values + i * n_chunk;
        if (adds_bos && bos >= 0 && !options->whole) {
            tokens[0] = bos; // is not scored, in this chunk or another
        }
        status = measure_chunk(measurement, tokens, n_chunk, first, error);
    }
    progress_end(&measurement->progress);
    return status;
}

// ---- results

static void print_result(const struct perplexity_options *options, const struct measurement *measurement)
{
    const struct side *side = &measurement->side, *reference = &measurement->reference;
    double perplexity = exp(mean_value(&side->nll));
    printf("PPL = %.6f +/- %.6f (%zu tokens scored)\n", perplexity, perplexity * mean_error(&side->nll),
           side->nll.count);
    if (options->compare) {
        double f32 = exp(mean_value(&reference->nll));
        double share = (double)measurement->n_same_best / (double)measurement->kl.count;
        printf("PPL in F32 = %.6f +/- %.6f\n", f32, f32 * mean_error(&reference->nll));
        printf("KL divergence from F32 = %.6f +/- %.6f, at most %.6f\n", mean_value(&measurement->kl),
               mean_error(&measurement->kl), measurement->most_kl);
        printf("same best token as in F32: %.3f%% +/- %.3f%%\n", 100 * share,
               measurement->kl.count > 1 ? 100 * sqrt(share * (1 - share) / (double)(measurement->kl.count - 1)) : 0);
    }
}

static bool print_result_json(const struct perplexity_options *options, const struct measurement *measurement)
{
    const struct side *side = &measurement->side, *reference = &measurement->reference;
    double perplexity = exp(mean_value(&side->nll)), f32 = exp(mean_value(&reference->nll));
    json_t *result =
        json_pack("{s:f, s:f, s:f, s:I}", "perplexity", perplexity, "error", perplexity * mean_error(&side->nll), "nll",
                  mean_value(&side->nll), "tokens", (json_int_t)side->nll.count);
    if (result && options->compare) {
        json_t *compared = json_pack("{s:f, s:f, s:f, s:f, s:f, s:f}", "perplexity_f32", f32, "perplexity_f32_error",
                                     f32 * mean_error(&reference->nll), "kl", mean_value(&measurement->kl), "kl_error",
                                     mean_error(&measurement->kl), "kl_max", measurement->most_kl, "same_best",
                                     (double)measurement->n_same_best / (double)measurement->kl.count);
        json_object_update(result, compared);
        json_decref(compared);
    }
    return print_json_line(result);
}

// ---- getting ready

static mote_status read_ids(const struct perplexity_options *options, mote_model *model, struct ids *ids,
                            mote_error *error)
{
    if (options->tokens) {
        mote_status status = ids_read_file(options->tokens, ids, error);
        size_t n_vocab = mote_model_n_vocab(model);
        return status == MOTE_OK && n_vocab > 0 ? ids_check(ids, n_vocab, error) : status;
    }
    struct text text = {0};
    mote_status status = text_read_prompt(NULL, options->file, true, &text, error);
    if (status == MOTE_OK) {
        status = ids_tokenize(model, text.data, text.size, options->special, ids, error);
    }
    free(text.data);
    return status == MOTE_OK ? ids_add_bos(model, ids, error) : status;
}

// How many tokens a chunk has.
static mote_status choose_chunk(const struct perplexity_options *options, struct compute *compute,
                                const struct ids *ids, size_t *n_chunk, mote_error *error)
{
    *n_chunk = options->whole                 ? ids->count
               : options->compute.context > 0 ? (size_t)options->compute.context
                                              : CHUNK_DEFAULT;
    if (*n_chunk < 4 || ids->count < *n_chunk) {
        return set_error(
            error, MOTE_INVALID,
            "the text has %zu tokens, fewer than a chunk of %zu: give a longer text, a smaller -c or --whole",
            ids->count, *n_chunk < 4 ? (size_t)4 : *n_chunk);
    }
    if (options->whole && options->compute.context > 0 && (size_t)options->compute.context < *n_chunk) {
        return set_error(error, MOTE_FULL, "the text has %zu tokens, more than the context of %lld: leave out -c",
                         *n_chunk, (long long)options->compute.context);
    }
    compute->params.n_context = *n_chunk;
    return MOTE_OK;
}

static mote_status open_reference(const struct perplexity_options *options, struct compute *compute,
                                  struct measurement *measurement, mote_error *error)
{
    if (!options->compare) {
        return MOTE_OK;
    }
    mote_engine_params params = compute->params;
    params.precision = "f32";
    params.kv = MOTE_KV_DEFAULT;
    params.progress_user = &measurement->progress;
    measurement->rows = malloc(COMPARED_ROWS * measurement->n_vocab * sizeof *measurement->rows);
    if (!measurement->rows) {
        return set_error(error, MOTE_MEMORY, "out of memory");
    }
    progress_begin(&measurement->progress, "loading");
    mote_status status = mote_engine_create(compute->model, &params, &measurement->reference.engine, error);
    progress_end(&measurement->progress);
    if (status == MOTE_OK) {
        signals_cancel_engine(1, measurement->reference.engine);
        status = mote_session_create(measurement->reference.engine, &measurement->reference.session, error);
    }
    return status;
}

static mote_status open_sides(const struct perplexity_options *options, struct compute *compute,
                              struct measurement *measurement, mote_error *error)
{
    mote_status status = compute_load(compute, error);
    if (status == MOTE_OK) {
        measurement->n_vocab = mote_model_n_vocab(compute->model);
        measurement->side.engine = compute->engine;
        status = mote_session_create(compute->engine, &measurement->side.session, error);
    }
    return status == MOTE_OK ? open_reference(options, compute, measurement, error) : status;
}

static int measure_text(const struct perplexity_options *options, struct compute *compute, struct ids *ids)
{
    struct measurement measurement = {0};
    mote_error error = {0};
    size_t n_chunk = 0;
    mote_status status = choose_chunk(options, compute, ids, &n_chunk, &error);
    if (status == MOTE_OK) {
        status = open_sides(options, compute, &measurement, &error);
    }
    if (status == MOTE_OK) {
        status = measure(options, compute->model, &measurement, ids, n_chunk, &error);
    }
    int exit_code = status == MOTE_OK ? EXIT_DONE : fail(&error);
    if (status == MOTE_OK && !options->json) {
        print_result(options, &measurement);
    } else if (status == MOTE_OK && !print_result_json(options, &measurement)) {
        exit_code = fail_message("the result is no number that JSON can hold");
    }
    if (status == MOTE_OK && compute_talks(&options->compute)) {
        fprintf(stderr, "%zu tokens in chunks of %zu (%s, %zu threads), %.1f s\n", measurement.n_total, n_chunk,
                mote_engine_isa(compute->engine), mote_engine_n_threads(compute->engine),
                seconds_now() - measurement.progress.started);
    }
    signals_cancel_engine(1, NULL);
    mote_session_destroy(measurement.reference.session);
    mote_engine_destroy(measurement.reference.engine);
    mote_session_destroy(measurement.side.session);
    free(measurement.rows);
    return exit_code;
}

static int perplexity_main(int argc, char **argv)
{
    struct perplexity_options options = {.compute = compute_options_default};
    struct positionals positionals;
    int exit_code;
    if (!options_parse(&command_perplexity, argc, argv, &options, &positionals, &exit_code)) {
        return exit_code;
    }
    options.model = positional_model(&positionals, options.model);
    if (!options.model) {
        return usage_error(&command_perplexity, "which model? Give a GGUF file");
    }
    if (positionals.count > 0) {
        return usage_error(&command_perplexity, "unexpected argument \"%.200s\": the text is given with -f",
                           positionals.values[0]);
    }
    if (options.file && options.tokens) {
        return usage_error(&command_perplexity, "-f and --tokens both give the text: leave one out");
    }
    if (options.whole && options.chunks > 0) {
        return usage_error(&command_perplexity, "--whole has no chunks: leave out --chunks");
    }
    if (options.compare && options.compute.precision && strcmp(options.compute.precision, "f32") == 0) {
        return usage_error(&command_perplexity, "--compare f32 compares with F32: leave out --precision f32");
    }
    struct compute compute;
    struct ids ids = {0};
    mote_error error = {0};
    mote_status status = compute_open(&compute, options.model, &options.compute, &error);
    if (status == MOTE_OK) {
        status = read_ids(&options, compute.model, &ids, &error);
    }
    exit_code = status == MOTE_OK ? measure_text(&options, &compute, &ids) : fail(&error);
    free(ids.values);
    compute_close(&compute);
    return exit_code;
}

const struct command command_perplexity = {
    .name = "perplexity",
    .summary = "measure how well a model foresees a text",
    .arguments = "MODEL -f FILE",
    .details =
        "Prints the perplexity of a text and its standard error, as llama.cpp computes it by default: chunks of\n"
        "-c tokens (512), BOS at the beginning of each where the model adds one, the second half of each scored.\n"
        "\n"
        "  mote perplexity MODEL.gguf -f book.txt --chunks 20\n"
        "  mote perplexity MODEL.gguf -f book.txt --compare f32",
    .options = perplexity_table,
    .max_positionals = 2,
    .main = perplexity_main,
};
