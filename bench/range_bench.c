// Measures what range-exact rounding costs: the same model in two engines of one process, with and without the range
// scale of F16 sources, run in turns. Prints the median of each and their ratio.
//
// usage: range_bench MODEL.gguf [THREADS [ROUNDS]]
#include "engine/engine.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { PROMPT = 512, DECODE = 64, MAX_ROUNDS = 99 };

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static int by_size(const void *a, const void *b)
{
    const double *x = a, *y = b;
    return *x < *y ? -1 : *x > *y;
}

static double median(double *values, size_t n)
{
    qsort(values, n, sizeof(*values), by_size);
    return values[n / 2];
}

// Seconds for a prompt, then for decoding behind it; false: it failed.
static bool measure(mote_engine *engine, size_t n_vocab, double seconds[2], mote_error *error)
{
    int32_t tokens[PROMPT];
    mote_session *session = NULL;
    for (int i = 0; i < PROMPT; i++)
        tokens[i] = (int32_t)(((size_t)i * 7919 + 1) % n_vocab);
    if (mote_session_create(engine, &session, error) != MOTE_OK)
        return false;
    mote_input input = {.session = session, .tokens = tokens, .n_tokens = PROMPT, .want = MOTE_WANT_LAST};
    double begin = now();
    bool good = mote_engine_run(engine, &input, 1, NULL, NULL, error) == MOTE_OK;
    seconds[0] = now() - begin;
    begin = now();
    input.n_tokens = 1;
    for (int i = 0; good && i < DECODE; i++) {
        input.tokens = &tokens[i];
        good = mote_engine_run(engine, &input, 1, NULL, NULL, error) == MOTE_OK;
    }
    seconds[1] = now() - begin;
    mote_session_destroy(session);
    return good;
}

static bool compare(mote_model *model, size_t n_threads, size_t n_rounds, mote_error *error)
{
    static double seconds[2][2][MAX_ROUNDS]; // [off, on][prompt, decode]
    static const char *const what[2] = {"prompt", "decode"};
    static const int tokens[2] = {PROMPT, DECODE};
    mote_engine *engines[2] = {NULL};
    mote_engine_params params;
    mote_engine_params_default(&params);
    params.n_threads = n_threads;
    params.n_context = PROMPT + DECODE;
    bool good = true;
    for (int on = 0; on < 2 && good; on++) {
        const struct engine_extras extras = {.range_off = on == 0};
        good = engine_create(model, &params, &extras, &engines[on], inner_error(error)) == STATUS_OK;
    }
    for (size_t round = 0; good && round <= n_rounds; round++) { // the first one warms up
        for (int turn = 0; good && turn < 2; turn++) {
            int on = (int)((size_t)turn ^ (round & 1));
            double one[2] = {0};
            good = measure(engines[on], mote_model_n_vocab(model), one, error);
            for (int i = 0; i < 2 && round > 0; i++)
                seconds[on][i][round - 1] = one[i];
        }
    }
    for (int i = 0; i < 2 && good; i++) {
        double off = tokens[i] / median(seconds[0][i], n_rounds), on = tokens[i] / median(seconds[1][i], n_rounds);
        printf("%s: %.1f tokens/s without, %.1f with the range scale: %.2f%%\n", what[i], off, on,
               100 * (on / off - 1));
    }
    for (int on = 0; on < 2; on++)
        mote_engine_destroy(engines[on]);
    return good;
}

int main(int argc, char **argv)
{
    mote_error error = {0};
    mote_model *model = NULL;
    size_t n_threads = argc > 2 ? strtoul(argv[2], NULL, 10) : 0, n_rounds = argc > 3 ? strtoul(argv[3], NULL, 10) : 11;
    if (argc < 2 || n_rounds == 0 || n_rounds > MAX_ROUNDS) {
        fprintf(stderr, "usage: range_bench MODEL.gguf [THREADS [ROUNDS, at most %d]]\n", MAX_ROUNDS);
        return 2;
    }
    bool good =
        mote_model_open(argv[1], NULL, &model, &error) == MOTE_OK && compare(model, n_threads, n_rounds, &error);
    if (!good)
        fprintf(stderr, "range_bench: %s\n", error.message);
    mote_model_close(model);
    return good ? 0 : 1;
}
