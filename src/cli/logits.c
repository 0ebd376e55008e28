// mote logits: the logits after each of given tokens, as a GGUF file. For people who compare engines.
#include "commands.h"
#include "compute.h"
#include "input.h"
#include "output.h"
#include "signals.h"

#include <stdlib.h>
#include <string.h>

struct logits_options {
    struct compute_options compute;
    const char *model, *tokens, *out, *want;
};

static const struct option logits_table[] = {
    {OPTION(TEXT, "-m --model", "FILE", "the model (or the first argument)", struct logits_options, model)},
    {OPTION(TEXT, "--tokens", "FILE",
            "token ids as text (-: standard input), or a GGUF file with a tensor named tokens (I32)",
            struct logits_options, tokens)},
    {OPTION(TEXT, "-o --output", "OUT.gguf", "the file to write", struct logits_options, out)},
    {OPTION(CHOICE, "--want", "all|last", "logits after all tokens (default), or after the last one only",
            struct logits_options, want),
     .choices = "all last"},
    COMPUTE_OPTIONS(struct logits_options, compute),
    {.kind = OPTION_END},
};

struct sink { // where rows of logits go as they come
    mote_writer *writer;
    size_t row_bytes, n_rows, n_done;
    struct progress progress;
    mote_error error;
};

static int write_row(void *user, size_t input, size_t index, const float *logits)
{
    (void)input;
    (void)index;
    struct sink *sink = user;
    sink->n_done++;
    return mote_writer_write(sink->writer, logits, sink->row_bytes, &sink->error) != MOTE_OK ||
           progress_update(&sink->progress, sink->n_done, sink->n_rows) != 0;
}

static mote_status run_tokens(struct compute *compute, const struct ids *ids, mote_want want, struct sink *sink,
                              mote_error *error)
{
    mote_session *session = NULL;
    mote_status status = mote_session_create(compute->engine, &session, error);
    if (status == MOTE_OK) {
        mote_input input = {.session = session, .tokens = ids->values, .n_tokens = ids->count, .want = want};
        progress_begin(&sink->progress, "computing");
        status = mote_engine_run(compute->engine, &input, 1, write_row, sink, error);
        progress_end(&sink->progress);
        if (sink->error.status != MOTE_OK) {
            *error = sink->error;
            status = error->status;
        }
        if (status == MOTE_OK && signals_caught()) {
            status = set_error(error, MOTE_CANCELLED, "interrupted");
        }
    }
    mote_session_destroy(session);
    return status;
}

static mote_status write_logits(struct compute *compute, const struct ids *ids, const char *out, bool last_only,
                                mote_error *error)
{
    size_t n_vocab = mote_model_n_vocab(compute->model);
    struct sink sink = {.row_bytes = n_vocab * sizeof(float), .n_rows = last_only ? 1 : ids->count};
    uint64_t tokens_shape[1] = {ids->count}, logits_shape[2] = {n_vocab, sink.n_rows};
    mote_status status = mote_writer_create(out, &sink.writer, error);
    if (status != MOTE_OK) {
        return status;
    }
    if ((status = mote_writer_add_string(sink.writer, "general.type", "logits", error)) != MOTE_OK ||
        (status = mote_writer_add_tensor(sink.writer, "tokens", "i32", 1, tokens_shape, error)) != MOTE_OK ||
        (status = mote_writer_add_tensor(sink.writer, "logits", "f32", 2, logits_shape, error)) != MOTE_OK ||
        (status = mote_writer_write(sink.writer, ids->values, ids->count * sizeof(int32_t), error)) != MOTE_OK ||
        (status = run_tokens(compute, ids, last_only ? MOTE_WANT_LAST : MOTE_WANT_ALL, &sink, error)) != MOTE_OK) {
        mote_writer_abort(sink.writer);
        return status;
    }
    return mote_writer_finish(sink.writer, error);
}

static mote_status prepare(const struct logits_options *options, struct compute *compute, struct ids *ids,
                           mote_error *error)
{
    mote_status status = compute_open(compute, options->model, &options->compute, error);
    if (status == MOTE_OK) {
        status = ids_read_file(options->tokens, ids, error);
    }
    if (status == MOTE_OK && ids->count == 0) {
        status = set_error(error, MOTE_INVALID, "%s holds no tokens", options->tokens);
    }
    if (status == MOTE_OK && mote_model_n_vocab(compute->model) > 0) { // 0: mote_engine_create says what is wrong
        status = ids_check(ids, mote_model_n_vocab(compute->model), error);
    }
    if (status == MOTE_OK && compute->params.n_context == 0) {
        compute->params.n_context = ids->count;
    }
    if (status == MOTE_OK && ids->count > compute->params.n_context) {
        status =
            set_error(error, MOTE_FULL, "%zu tokens do not fit into the context of %zu: leave out -c, or give -c %zu",
                      ids->count, compute->params.n_context, ids->count);
    }
    return status == MOTE_OK ? compute_load(compute, error) : status;
}

static int logits_main(int argc, char **argv)
{
    struct logits_options options = {.compute = compute_options_default};
    struct positionals positionals;
    int exit_code;
    if (!options_parse(&command_logits, argc, argv, &options, &positionals, &exit_code)) {
        return exit_code;
    }
    options.model = positional_model(&positionals, options.model);
    if (positionals.count > 0) {
        return usage_error(&command_logits, "unexpected argument \"%.200s\"", positionals.values[0]);
    }
    if (!options.model || !options.tokens || !options.out) {
        return usage_error(&command_logits, "%s",
                           !options.model    ? "which model? Give a GGUF file"
                           : !options.tokens ? "which tokens? Give --tokens FILE"
                                             : "where to? Give -o OUT.gguf");
    }
    if (is_same_file(options.out, options.model) || is_same_file(options.out, options.tokens)) {
        return usage_error(&command_logits, "-o %s would overwrite what is read", options.out);
    }
    struct compute compute;
    struct ids ids = {0};
    mote_error error = {0};
    bool last_only = options.want && strcmp(options.want, "last") == 0;
    mote_status status = prepare(&options, &compute, &ids, &error);
    if (status == MOTE_OK) {
        status = write_logits(&compute, &ids, options.out, last_only, &error);
    }
    exit_code = status == MOTE_OK ? EXIT_DONE : fail(&error);
    free(ids.values);
    compute_close(&compute);
    return exit_code;
}

const struct command command_logits = {
    .name = "logits",
    .summary = "write the logits after given tokens to a file",
    .arguments = "MODEL --tokens FILE -o OUT.gguf",
    .details = "Runs the tokens through the model once and writes OUT.gguf with the tensors tokens (I32 [n]) and\n"
               "logits (F32 [n_vocab, n] in GGUF order), as they come. The file appears whole or not at all. No BOS\n"
               "is added.\n"
               "\n"
               "  mote tokenize MODEL.gguf --ids \"Hello, world\" | mote logits MODEL.gguf --tokens - -o out.gguf",
    .options = logits_table,
    .max_positionals = 2,
    .main = logits_main,
};
