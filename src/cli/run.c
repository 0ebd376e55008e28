// mote run: one answer, streamed.
#include "chat.h"
#include "commands.h"
#include "compute.h"
#include "input.h"
#include "output.h"
#include "signals.h"

#include <stdlib.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

enum { CONTEXT_DEFAULT = 8192, ANSWER_ROOM = 1024 };

struct run_options {
    struct compute_options compute;
    const char *model, *prompt, *file, *cache;
    int64_t n_predict;                // -1: until the end
    int64_t seed;                     // -1: random
    int64_t top_k;                    // -1: not given
    double temperature, top_p, min_p; // -1: not given
    bool ignore_eos, raw, no_special, cache_all, cache_ro;
};

static const struct option run_table[] = {
    {OPTION(TEXT, "-m --model", "FILE", "the model (or the first argument)", struct run_options, model)},
    {OPTION(TEXT, "-p --prompt", "TEXT", "the prompt (default: standard input)", struct run_options, prompt)},
    {OPTION(TEXT, "-f --file", "FILE", "the prompt is what FILE holds (-: standard input), without its last newline",
            struct run_options, file)},
    {OPTION(INTEGER, "-n --predict --n-predict", "N", "tokens to generate at most (default and -1: until the end)",
            struct run_options, n_predict),
     .least = -1, .most = INT32_MAX},
    {OPTION(FLAG, "--raw", NULL, "the prompt as it is, without the model's chat template", struct run_options, raw)},
    {OPTION(FLAG, "--no-special", NULL, "with --raw: special tokens in the prompt are ordinary text",
            struct run_options, no_special)},
    {OPTION(FLAG, "--ignore-eos", NULL, "never end by itself", struct run_options, ignore_eos)},
    {OPTION(INTEGER, "-s --seed", "N", "seed of the random choices (default and -1: a random one)", struct run_options,
            seed),
     .least = -1, .most = INT64_MAX},
    {OPTION(NUMBER, "--temp --temperature", "X", "0: always the likeliest token (default: the model's, else 0.8)",
            struct run_options, temperature),
     .low = 0, .high = 1000},
    {OPTION(INTEGER, "--top-k", "N", "choose among the N likeliest tokens; 0: all (default: the model's, else 40)",
            struct run_options, top_k),
     .least = 0, .most = INT32_MAX},
    {OPTION(NUMBER, "--top-p", "X",
            "choose among the likeliest tokens that make up this probability; 1: all (default: the model's, else 0.95)",
            struct run_options, top_p),
     .low = 0, .high = 1},
    {OPTION(NUMBER, "--min-p", "X",
            "choose among tokens with at least this share of the best one's probability; 0: all (default: the model's, "
            "else 0.05)",
            struct run_options, min_p),
     .low = 0, .high = 1},
    {OPTION(TEXT, "--prompt-cache", "FILE",
            "go on from what FILE holds of the prompt, and save there what the prompt became", struct run_options,
            cache)},
    {OPTION(FLAG, "--prompt-cache-all", NULL, "save the answer too, at its end", struct run_options, cache_all)},
    {OPTION(FLAG, "--prompt-cache-ro", NULL, "use the file of --prompt-cache, but do not write it", struct run_options,
            cache_ro)},
    COMPUTE_OPTIONS(struct run_options, compute),
    {.kind = OPTION_END},
};

enum ending { ENDED_BY_LIMIT, ENDED_BY_MODEL, ENDED_BY_CONTEXT };

struct generation {
    mote_sampler *sampler;
    uint64_t position; // of the token that is sampled next
    int32_t id;        // the token that was sampled
    mote_error error;  // of the sampler
    int64_t n_generated;
    double prompt_seconds, answer_seconds;
    enum ending ending;
};

static int sample(void *user, size_t input, size_t index, const float *logits)
{
    (void)input;
    (void)index;
    struct generation *generation = user;
    return mote_sampler_sample(generation->sampler, logits, generation->position, &generation->id,
                               &generation->error) != MOTE_OK ||
           signals_caught();
}

// The text of one token, or (id -1) what was held back until now.
static mote_status print_token(mote_decoder *decoder, int32_t id, mote_error *error)
{
    const char *text;
    size_t size;
    mote_status status = id >= 0 ? mote_decoder_add(decoder, id, &text, &size, error)
                                 : mote_decoder_finish(decoder, &text, &size, error);
    if (status == MOTE_OK && size > 0) {
        print_model_text(stdout, text, size);
        fflush(stdout); // finish_output says what went wrong
    }
    return status;
}

// ---- the prompt cache

// Makes the session what the file holds of the prompt: *n_kept tokens of it, of which at least one is left to run.
static mote_status use_cache(const struct run_options *options, mote_session *session, const struct ids *prompt,
                             size_t *n_kept, mote_error *error)
{
    *n_kept = 0;
    if (!options->cache || access(options->cache, F_OK) != 0) {
        return MOTE_OK;
    }
    mote_status status = mote_session_restore(session, options->cache, error);
    if (status != MOTE_OK) {
        return status;
    }
    size_t n = mote_session_n_tokens(session), same = 0;
    const int32_t *tokens = mote_session_tokens(session);
    while (same < n && same + 1 < prompt->count && tokens[same] == prompt->values[same]) {
        same++;
    }
    if (mote_session_truncate(session, same, error) == MOTE_OK) {
        *n_kept = same;
    } else {
        if (compute_talks(&options->compute)) {
            warn_message("%s: %s; the prompt is run from its beginning", options->cache, error->message);
        }
        mote_session_clear(session);
    }
    return MOTE_OK;
}

static mote_status save_cache(const struct run_options *options, mote_session *session, bool at_end, mote_error *error)
{
    bool saves = options->cache && !options->cache_ro && at_end == options->cache_all;
    return saves ? mote_session_save(session, options->cache, error) : MOTE_OK;
}

// Prompt, then a token at a time. MOTE_OK where the answer ended by itself, by -n, or by a full context.
static mote_status generate(const struct run_options *options, struct compute *compute, mote_session *session,
                            mote_decoder *decoder, const struct ids *prompt, struct generation *generation,
                            mote_error *error)
{
    const size_t n_context = mote_engine_n_context(compute->engine);
    size_t n_kept;
    mote_status status = use_cache(options, session, prompt, &n_kept, error);
    if (status != MOTE_OK) {
        return status;
    }
    mote_input input = {.session = session,
                        .tokens = prompt->values + n_kept,
                        .n_tokens = prompt->count - n_kept,
                        .want = options->n_predict == 0 ? MOTE_WANT_NONE : MOTE_WANT_LAST};
    double started = seconds_now();
    generation->ending = ENDED_BY_LIMIT;
    int32_t fed; // what input points to, while generation->id is written
    do {
        generation->position = mote_session_n_tokens(session) + input.n_tokens;
        status = mote_engine_run(compute->engine, &input, 1, sample, generation, error);
        if (generation->error.status != MOTE_OK) {
            *error = generation->error;
            return error->status;
        }
        if (status != MOTE_OK || signals_caught()) {
            return status != MOTE_OK ? status : set_error(error, MOTE_CANCELLED, "interrupted");
        }
        if (generation->n_generated == 0) {
            generation->prompt_seconds = seconds_now() - started;
            status = save_cache(options, session, false, error);
            if (status != MOTE_OK) {
                return status;
            }
            started = seconds_now();
        }
        if (options->n_predict == 0) {
            break;
        }
        if (!options->ignore_eos && mote_token_is_end(compute->model, generation->id)) {
            generation->ending = ENDED_BY_MODEL;
            break;
        }
        generation->n_generated++;
        status = print_token(decoder, generation->id, error);
        if (status != MOTE_OK || ferror(stdout)) {
            return status; // without a reader there is no point in going on
        }
        if (mote_session_n_tokens(session) >= n_context && generation->n_generated != options->n_predict) {
            generation->ending = ENDED_BY_CONTEXT;
            break;
        }
        fed = generation->id;
        input = (mote_input){.session = session, .tokens = &fed, .n_tokens = 1, .want = MOTE_WANT_LAST};
    } while (generation->n_generated != options->n_predict);
    generation->answer_seconds = seconds_now() - started;
    status = save_cache(options, session, true, error);
    return status == MOTE_OK ? print_token(decoder, -1, error) : status;
}

static mote_status make_sampler(const struct run_options *options, mote_model *model, uint64_t seed,
                                mote_sampler **sampler, mote_error *error)
{
    mote_sampling sampling;
    mote_sampling_default(model, &sampling);
    sampling.temperature = options->temperature >= 0 ? (float)options->temperature : sampling.temperature;
    sampling.top_k = options->top_k >= 0 ? (int32_t)options->top_k : sampling.top_k;
    sampling.top_p = options->top_p >= 0 ? (float)options->top_p : sampling.top_p;
    sampling.min_p = options->min_p >= 0 ? (float)options->min_p : sampling.min_p;
    sampling.seed = seed;
    size_t n_vocab = mote_model_n_vocab(model);
    mote_status status = mote_sampler_create(&sampling, n_vocab, sampler, error);
    for (size_t id = 0; options->ignore_eos && status == MOTE_OK && id < n_vocab; id++) {
        if (mote_token_is_end(model, (int32_t)id)) {
            status = mote_sampler_ban(*sampler, (int32_t)id, error);
        }
    }
    return status;
}

static uint64_t choose_seed(const struct run_options *options)
{
    uint32_t random; // 32 bits: short enough to be typed again
    if (options->seed >= 0) {
        return (uint64_t)options->seed;
    }
    return getrandom(&random, sizeof random, 0) == (ssize_t)sizeof random ? random : (uint64_t)time(NULL);
}

static void print_timings(const struct compute *compute, const struct ids *prompt, const struct generation *generation,
                          uint64_t seed)
{
    static const char *const endings[] = {
        [ENDED_BY_LIMIT] = "-n", [ENDED_BY_MODEL] = "the model", [ENDED_BY_CONTEXT] = "a full context"};
    int64_t n_after_first = generation->n_generated > 1 ? generation->n_generated - 1 : 0;
    fprintf(
        stderr,
        "loaded in %.2f s (%s, %zu threads) | prompt: %zu tokens in %.2f s, %.1f/s | answer: %lld tokens in %.2f s, "
        "%.1f/s | ended by %s | seed %llu\n",
        compute->load_seconds, mote_engine_isa(compute->engine), mote_engine_n_threads(compute->engine), prompt->count,
        generation->prompt_seconds,
        generation->prompt_seconds > 0 ? (double)prompt->count / generation->prompt_seconds : 0,
        (long long)generation->n_generated, generation->answer_seconds,
        generation->answer_seconds > 0 ? (double)n_after_first / generation->answer_seconds : 0,
        endings[generation->ending], (unsigned long long)seed);
}

static int answer(const struct run_options *options, struct compute *compute, const struct ids *prompt)
{
    struct generation generation = {0};
    mote_session *session = NULL;
    mote_decoder *decoder = NULL;
    mote_error error = {0};
    uint64_t seed = choose_seed(options);
    mote_status status = make_sampler(options, compute->model, seed, &generation.sampler, &error);
    if (status == MOTE_OK) {
        status = mote_session_create(compute->engine, &session, &error);
    }
    if (status == MOTE_OK) {
        status = mote_decoder_create(compute->model, false, &decoder, &error);
    }
    if (status == MOTE_OK) {
        status = generate(options, compute, session, decoder, prompt, &generation, &error);
    }
    if (isatty(STDOUT_FILENO) && (status == MOTE_OK || generation.n_generated > 0)) {
        fputs("\n", stdout);
    }
    fflush(stdout);
    int exit_code = status == MOTE_OK ? EXIT_DONE : fail(&error);
    if (status == MOTE_OK && !ferror(stdout)) {
        if (generation.ending == ENDED_BY_CONTEXT) {
            warn_message("the context of %zu tokens is full: the answer was cut short (-c N gives it more room)",
                         mote_engine_n_context(compute->engine));
        }
        if (compute_talks(&options->compute)) {
            print_timings(compute, prompt, &generation, seed);
        }
    }
    mote_decoder_destroy(decoder);
    mote_session_destroy(session);
    mote_sampler_destroy(generation.sampler);
    return exit_code;
}

// The context of a session: as asked for, else a default that a long prompt widens as far as the model was trained for.
static mote_status choose_context(const struct run_options *options, struct compute *compute, size_t n_prompt,
                                  mote_error *error)
{
    size_t trained = mote_model_n_context(compute->model);
    size_t n_context = compute->params.n_context;
    if (n_context == 0) {
        size_t room = options->n_predict >= 0 ? (size_t)options->n_predict : ANSWER_ROOM;
        size_t most = trained ? trained : CONTEXT_DEFAULT;
        n_context = n_prompt + room > CONTEXT_DEFAULT ? n_prompt + room : CONTEXT_DEFAULT;
        n_context = n_context < most ? n_context : most;
    }
    if (n_prompt > n_context) {
        return set_error(error, MOTE_FULL,
                         "the prompt has %zu tokens, more than the context of %zu: shorten it, or give -c %zu (the "
                         "model was trained for %zu)",
                         n_prompt, n_context, n_prompt + 256, trained);
    }
    if (trained && n_context > trained && compute_talks(&options->compute)) {
        warn_message("a context of %zu tokens is more than the %zu that the model was trained for", n_context, trained);
    }
    compute->params.n_context = n_context;
    return MOTE_OK;
}

static mote_status read_prompt(const struct run_options *options, struct text *prompt, mote_error *error)
{
    size_t bad;
    mote_status status = text_read_prompt(options->prompt, options->file, true, prompt, error);
    if (status == MOTE_OK && !utf8_check(prompt->data, prompt->size, &bad)) {
        return set_error(error, MOTE_INVALID, "the prompt is not UTF-8: byte 0x%02x at offset %zu",
                         (unsigned char)prompt->data[bad], bad);
    }
    return status;
}

static mote_status tokenize_prompt(const struct run_options *options, mote_model *model, const struct text *prompt,
                                   struct ids *ids, mote_error *error)
{
    bool chat = !options->raw && chat_has_template(model);
    if (chat && prompt->size == 0) {
        return set_error(error, MOTE_INVALID, "the prompt is empty: give one with -p, -f or on standard input");
    }
    mote_status status =
        chat ? chat_tokenize(model, prompt, ids, error) : raw_tokenize(model, prompt, !options->no_special, ids, error);
    if (status == MOTE_OK && ids->count == 0) {
        return set_error(error, MOTE_INVALID,
                         "the prompt has no tokens, and the model has no BOS token to begin with: give a prompt with "
                         "-p, -f or on standard input");
    }
    return status;
}

static int run_main(int argc, char **argv)
{
    struct run_options options = {.compute = compute_options_default,
                                  .n_predict = -1,
                                  .seed = -1,
                                  .top_k = -1,
                                  .temperature = -1,
                                  .top_p = -1,
                                  .min_p = -1};
    struct positionals positionals;
    int exit_code;
    if (!options_parse(&command_run, argc, argv, &options, &positionals, &exit_code)) {
        return exit_code;
    }
    options.model = positional_model(&positionals, options.model);
    if (!options.model) {
        return usage_error(&command_run, "which model? Give a GGUF file");
    }
    if (positionals.count > 0) {
        return usage_error(&command_run, "unexpected argument \"%.200s\": a prompt is given with -p",
                           positionals.values[0]);
    }
    if ((options.cache_all || options.cache_ro) && !options.cache) {
        return usage_error(&command_run, "--prompt-cache-all and --prompt-cache-ro go with --prompt-cache FILE");
    }
    if (options.prompt && options.file) {
        return usage_error(&command_run, "-p and -f both give the prompt: leave one out");
    }
    struct compute compute;
    struct text prompt = {0};
    struct ids ids = {0};
    mote_error error = {0};
    mote_status status = compute_open(&compute, options.model, &options.compute, &error);
    if (status == MOTE_OK) {
        status = read_prompt(&options, &prompt, &error);
    }
    if (status == MOTE_OK) {
        status = tokenize_prompt(&options, compute.model, &prompt, &ids, &error);
    }
    if (status == MOTE_OK) {
        status = choose_context(&options, &compute, ids.count, &error);
    }
    if (status == MOTE_OK) {
        status = compute_load(&compute, &error);
    }
    exit_code = status == MOTE_OK ? answer(&options, &compute, &ids) : fail(&error);
    free(ids.values);
    free(prompt.data);
    compute_close(&compute);
    return exit_code;
}

const struct command command_run = {
    .name = "run",
    .summary = "answer a prompt",
    .arguments = "MODEL",
    .details =
        "Answers one prompt: from -p, from a file, or from standard input. Where the model has a chat template,\n"
        "the prompt is a user's message in it. Standard output gets the answer alone, as it is generated.\n"
        "\n"
        "  mote run MODEL.gguf -p \"Why is the sky blue?\"\n"
        "  mote run MODEL.gguf --raw -p \"Once upon a time\" -n 64 --temp 0\n"
        "  mote run MODEL.gguf < question.txt",
    .options = run_table,
    .max_positionals = 2,
    .main = run_main,
};
