// mote doctor: runs a text with sources in F32 and tells how large they get, what of it does not fit in F16, and what
// in the weights would make a model answer nonsense anyhow.
#include "doctor.h"

#include "commands.h"
#include "input.h"
#include "output.h"
#include "signals.h"

#include <stdlib.h>
#include <string.h>

struct doctor_options {
    struct compute_options compute;
    const char *model, *file, *tokens, *svg;
    bool json;
};

static const struct option doctor_table[] = {
    {OPTION(TEXT, "-m --model", "FILE", "the model (or the first argument)", struct doctor_options, model)},
    {OPTION(TEXT, "-f --file", "FILE", "the text to run (-: standard input; default: a built-in one)",
            struct doctor_options, file)},
    {OPTION(TEXT, "--tokens", "FILE",
            "token ids instead of a text: as text, or a GGUF file with a tensor named tokens (I32)",
            struct doctor_options, tokens)},
    {OPTION(FLAG, "--json", NULL, "as JSON", struct doctor_options, json)},
    {OPTION(TEXT, "--svg", "OUT.svg", "write a picture of the magnitudes by layer as well", struct doctor_options,
            svg)},
    {.kind = OPTION_TABLE, .table = compute_options_but_precision, .offset = offsetof(struct doctor_options, compute)},
    {.kind = OPTION_END},
};

// Prose, numbers, code and a few languages, because outliers come with unusual tokens.
static const char built_in_text[] =
    "The lighthouse keeper wrote one line a day for forty years. \"Wind from the north-west, sea high, lamp lit at "
    "17:42,\" "
    "says the entry of 3 November 1911, and the next morning: \"Nothing to report.\" Historians who read the 14,600 "
    "lines "
    "found, between the weather and the oil, the price of coal (12s. 6d. a ton), two shipwrecks, the birth of a "
    "daughter "
    "and, once, a word crossed out so hard that the pen went through the paper.\n\n"
    "How warm is a star? Its colour tells: a red one is about 3,000 K at its surface, the Sun 5,772 K, a blue one "
    "30,000 K and more. Wien's law says why: λ_max · T = 2.898 × 10⁻³ m·K, so twice the temperature is half the "
    "wavelength.\n\n"
    "1. Heat the oven to 180 °C.\n2. Mix 250 g of flour, 3 eggs and a pinch of salt.\n3. Wait.\n\n"
    "```python\ndef fibonacci(n):\n    a, b = 0, 1\n    for _ in range(n):\n        a, b = b, a + b\n    return a\n\n"
    "print([fibonacci(i) for i in range(10)])  # [0, 1, 1, 2, 3, 5, 8, 13, 21, 34]\n```\n\n"
    "{\"id\": 7, \"name\": \"Ada\", \"tags\": [\"x\", \"y\"], \"ok\": true}\n\n"
    "Der Zug nach Zürich fährt um acht Uhr ab. Il pleut depuis ce matin. ¿Dónde está la biblioteca? "
    "今日は天気がいいですね。 Привет, мир! WHY ARE YOU SHOUTING?!?! aaaaaaaaaaaaaaaa ... ;;; >>> "
    "https://example.org/a?b=c#d\n";

// ---- the run

static mote_status read_ids(const struct doctor_options *options, mote_model *model, struct ids *ids, mote_error *error)
{
    if (options->tokens) {
        mote_status status = ids_read_file(options->tokens, ids, error);
        size_t n_vocab = mote_model_n_vocab(model);
        return status == MOTE_OK && n_vocab > 0 ? ids_check(ids, n_vocab, error) : status;
    }
    struct text text = {0};
    mote_status status = text_read_prompt(options->file ? NULL : built_in_text, options->file, true, &text, error);
    if (status == MOTE_OK) {
        status = ids_tokenize(model, text.data, text.size, false, ids, error);
    }
    free(text.data);
    return status == MOTE_OK ? ids_add_bos(model, ids, error) : status;
}

// A text that is longer than the context is cut.
static mote_status cut_ids(struct compute *compute, struct ids *ids, bool built_in, mote_error *error)
{
    size_t trained = mote_model_n_context(compute->model);
    size_t n = compute->params.n_context ? compute->params.n_context : trained ? trained : ids->count;
    if (ids->count == 0) {
        return set_error(error, MOTE_INVALID, "the text has no tokens: there is nothing to run");
    }
    if (ids->count > n) {
        if (!built_in) {
            warn_message("the text has %zu tokens: the first %zu are run", ids->count, n);
        }
        ids->count = n;
    }
    compute->params.n_context = ids->count;
    return MOTE_OK;
}

struct counting {
    struct progress progress;
    size_t n_done, n;
};

static int count_row(void *user, size_t input, size_t index, const float *logits)
{
    (void)input;
    (void)index;
    (void)logits;
    struct counting *counting = user;
    return progress_update(&counting->progress, ++counting->n_done, counting->n);
}

// Logits of all tokens, so that the output head's source is seen too. Logits that are not finite end the run and are a
// finding: *found.
static mote_status run_ids(struct compute *compute, const struct ids *ids, mote_error *found, mote_error *error)
{
    mote_session *session = NULL;
    mote_status status = mote_session_create(compute->engine, &session, error);
    if (status == MOTE_OK) {
        mote_input input = {.session = session, .tokens = ids->values, .n_tokens = ids->count, .want = MOTE_WANT_ALL};
        struct counting counting = {.n = ids->count};
        progress_begin(&counting.progress, "running");
        status = mote_engine_run(compute->engine, &input, 1, count_row, &counting, found);
        progress_end(&counting.progress);
        if (signals_caught()) {
            status = set_error(error, MOTE_CANCELLED, "interrupted");
        } else if (status != MOTE_INVALID && status != MOTE_OK) {
            *error = *found;
        } else {
            status = MOTE_OK;
        }
    }
    mote_session_destroy(session);
    return status;
}

// ---- the report

static void fill_line(struct doctor_line *line, const json_t *seen, const char *kind)
{
    const json_t *layer = json_object_get(seen, "layer");
    const char *source = json_string_value(json_object_get(seen, "default"));
    line->tensor = json_string_value(json_object_get(seen, "tensor"));
    line->kind = kind ? kind : json_string_value(json_object_get(seen, "kind"));
    line->source = source ? source : "f16";
    line->layer = json_is_integer(layer) ? (int)json_integer_value(layer) : -1;
    line->n_rows = json_number_value(json_object_get(seen, "rows"));
    line->n_over = json_number_value(json_object_get(seen, "over"));
    line->n_not_finite = json_number_value(json_object_get(seen, "not_finite"));
    line->largest = json_number_value(json_object_get(seen, "largest"));
    line->exponent = (int)json_integer_value(json_object_get(seen, "exponent"));
}

static bool fill_lines(struct doctor_report *report)
{
    static const struct {
        const char *key, *kind;
    } lists[] = {{"sources", NULL}, {"keys", "keys"}, {"values", "values"}};
    size_t n = 0;
    for (size_t i = 0; i < 3; i++) {
        n += json_array_size(json_object_get(report->json, lists[i].key));
    }
    report->lines = calloc(n + 1, sizeof *report->lines);
    if (!report->lines) {
        return false;
    }
    for (size_t i = 0; i < 3; i++) {
        const json_t *seen;
        size_t at;
        json_array_foreach(json_object_get(report->json, lists[i].key), at, seen)
        {
            struct doctor_line *line = &report->lines[report->n_lines++];
            fill_line(line, seen, lists[i].kind);
            report->n_layers = line->layer >= report->n_layers ? line->layer + 1 : report->n_layers;
        }
    }
    return true;
}

static void list_never_picked(json_t *routers)
{
    json_t *router, *count;
    size_t i, expert;
    json_array_foreach(routers, i, router)
    {
        json_t *never = json_array();
        json_array_foreach(json_object_get(router, "picks"), expert, count)
        {
            if (json_integer_value(count) == 0) {
                json_array_append_new(never, json_integer((json_int_t)expert));
            }
        }
        json_object_set_new(router, "never_picked", never);
    }
}

// A text that may hold anything: what is not UTF-8 becomes '?'. NULL: null.
static json_t *text_json(const char *text)
{
    size_t size = text ? strlen(text) : 0, bad;
    char *copy = text ? malloc(size + 1) : NULL;
    if (!copy) {
        return text ? NULL : json_null();
    }
    memcpy(copy, text, size + 1);
    for (size_t at = 0; !utf8_check(copy + at, size - at, &bad);) {
        copy[at += bad] = '?';
    }
    json_t *json = json_string(copy);
    free(copy);
    return json;
}

// All that was found, as JSON and as lines. weights is taken.
static mote_status make_report(struct compute *compute, const char *path, size_t n_tokens, const mote_error *found,
                               json_t *weights, struct doctor_report *report, mote_error *error)
{
    char *text = NULL;
    mote_status status = mote_engine_observed(compute->engine, &text, error);
    json_t *seen = text ? json_loads(text, 0, NULL) : NULL;
    mote_free(text);
    report->json = json_pack("{s:o, s:o, s:o, s:I, s:f, s:o}", "model", text_json(path), "architecture",
                             text_json(mote_model_string(compute->model, "general.architecture")), "name",
                             text_json(mote_model_string(compute->model, "general.name")), "tokens",
                             (json_int_t)n_tokens, "limit", HALF_LIMIT, "weights", weights);
    if (report->json && found->status != MOTE_OK) {
        json_object_set_new(report->json, "error", json_string(found->message));
    }
    if (status == MOTE_OK &&
        (!report->json || !seen || json_object_update(report->json, seen) != 0 || !fill_lines(report))) {
        status = set_error(error, MOTE_MEMORY, "out of memory for the report");
    }
    json_decref(seen);
    if (status == MOTE_OK) {
        list_never_picked(json_object_get(report->json, "routers"));
        json_object_set_new(report->json, "verdict", doctor_verdict(report));
    }
    return status;
}

static mote_status examine(const struct doctor_options *options, struct doctor_report *report, mote_error *error)
{
    struct compute compute;
    struct ids ids = {0};
    struct progress progress;
    mote_error found = {0};
    json_t *weights = NULL;
    mote_status status = compute_open(&compute, options->model, &options->compute, error);
    if (status == MOTE_OK) {
        status = read_ids(options, compute.model, &ids, error);
    }
    if (status == MOTE_OK) {
        status = cut_ids(&compute, &ids, !options->file && !options->tokens, error);
    }
    if (status == MOTE_OK) {
        compute.params.precision = "f32";
        compute.params.observe = true;
        status = compute_load(&compute, error);
    }
    if (status == MOTE_OK) {
        progress_begin(&progress, "weights");
        weights = doctor_check_weights(compute.model, &progress, error);
        progress_end(&progress);
        status = weights ? run_ids(&compute, &ids, &found, error) : error->status;
    }
    if (status == MOTE_OK) {
        status = make_report(&compute, options->model, ids.count, &found, weights, report, error);
        weights = NULL;
    }
    json_decref(weights);
    free(ids.values);
    compute_close(&compute);
    return status;
}

static mote_status write_picture(const struct doctor_report *report, const char *path, mote_error *error)
{
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    bool drawn = out && doctor_write_svg(report, out);
    drawn = out && fclose(out) == 0 && drawn;
    mote_status status =
        drawn ? write_file(path, text, size, error) : set_error(error, MOTE_MEMORY, "out of memory for the picture");
    free(text);
    return status;
}

static int doctor_main(int argc, char **argv)
{
    struct doctor_options options = {.compute = compute_options_default};
    struct positionals positionals;
    int exit_code;
    if (!options_parse(&command_doctor, argc, argv, &options, &positionals, &exit_code)) {
        return exit_code;
    }
    options.model = positional_model(&positionals, options.model);
    if (!options.model) {
        return usage_error(&command_doctor, "which model? Give a GGUF file");
    }
    if (positionals.count > 0) {
        return usage_error(&command_doctor, "unexpected argument \"%.200s\": a text is given with -f",
                           positionals.values[0]);
    }
    if (options.file && options.tokens) {
        return usage_error(&command_doctor, "-f and --tokens both give the text: leave one out");
    }
    if (options.compute.devices < 0 || options.compute.devices > 1 || options.compute.split.count > 1) {
        return usage_error(&command_doctor, "doctor looks at whole rows, which none of several devices has: leave "
                                            "--devices and --split out");
    }
    if (options.svg &&
        (is_same_file(options.svg, options.model) || (options.file && is_same_file(options.svg, options.file)) ||
         (options.tokens && is_same_file(options.svg, options.tokens)))) {
        return usage_error(&command_doctor, "--svg %s would overwrite what is read", options.svg);
    }
    struct doctor_report report = {0};
    mote_error error = {0};
    mote_status status = examine(&options, &report, &error);
    if (status == MOTE_OK && options.svg) {
        status = write_picture(&report, options.svg, &error);
    }
    exit_code = status == MOTE_OK ? EXIT_DONE : fail(&error);
    if (status == MOTE_OK && options.json) {
        exit_code = print_json_pretty(json_incref(report.json)) ? EXIT_DONE : fail_message("out of memory");
    } else if (status == MOTE_OK) {
        doctor_print(&report);
    }
    free(report.lines);
    json_decref(report.json);
    return exit_code;
}

const struct command command_doctor = {
    .name = "doctor",
    .summary = "find where a model leaves the range of F16, and what is wrong in its weights",
    .arguments = "MODEL",
    .details =
        "Runs a text with all sources in F32 and shows, by layer, the largest magnitude that goes into a matrix\n"
        "product or into the KV cache, and how many rows would overflow where they are rounded to F16; finds NaN\n"
        "and infinity in weights, experts that are all zeros, and experts that no token is sent to.\n"
        "\n"
        "  mote doctor MODEL.gguf\n"
        "  mote doctor MODEL.gguf -f TEXT.txt --svg magnitudes.svg",
    .options = doctor_table,
    .max_positionals = 2,
    .main = doctor_main,
};
