// mote tokenize: text to token ids and back.
#include "commands.h"
#include "compute.h"
#include "input.h"
#include "output.h"

#include <stdlib.h>
#include <string.h>

struct tokenize_options {
    const char *model, *file, *pre;
    bool ids, count, json, bos, special, decode, jsonl;
};

static const struct option tokenize_table[] = {
    {OPTION(TEXT, "-m --model", "FILE", "the model (or the first argument)", struct tokenize_options, model)},
    {OPTION(TEXT, "-f --file", "FILE", "the text is what FILE holds, as it is (-: standard input)",
            struct tokenize_options, file)},
    {OPTION(FLAG, "--ids", NULL, "print the ids alone, on one line", struct tokenize_options, ids)},
    {OPTION(FLAG, "--count", NULL, "print how many tokens there are", struct tokenize_options, count)},
    {OPTION(FLAG, "--json", NULL, "print a JSON object of ids and pieces", struct tokenize_options, json)},
    {OPTION(FLAG, "--bos", NULL, "begin with the model's BOS token", struct tokenize_options, bos)},
    {OPTION(FLAG, "--special", NULL, "recognise special tokens in the text; with --decode: write them too",
            struct tokenize_options, special)},
    {OPTION(FLAG, "--decode", NULL, "the text is ids, separated by blanks or commas: print what they stand for",
            struct tokenize_options, decode)},
    {OPTION(FLAG, "--jsonl", NULL, "answer a case a line of standard input (see above)", struct tokenize_options,
            jsonl)},
    {OPTION(TEXT, "--pre", "NAME", "the pre-tokenizer to use, whatever the file says", struct tokenize_options, pre)},
    {.kind = OPTION_END},
};

static json_t *ids_to_json(const struct ids *ids)
{
    json_t *array = json_array();
    for (size_t i = 0; i < ids->count; i++) {
        json_array_append_new(array, json_integer(ids->values[i]));
    }
    return array;
}

// Bytes in hexadecimal: what is not UTF-8 has no other form in JSON.
static json_t *bytes_to_hex(const char *data, size_t size)
{
    static const char digits[] = "0123456789abcdef";
    char *hex = malloc(2 * size + 1);
    if (!hex) {
        return NULL;
    }
    for (size_t i = 0; i < size; i++) {
        hex[2 * i] = digits[(unsigned char)data[i] >> 4];
        hex[2 * i + 1] = digits[(unsigned char)data[i] & 15];
    }
    json_t *value = json_stringn(hex, 2 * size);
    free(hex);
    return value;
}

// ---- lines of JSON

static mote_status member_bool(const json_t *line, const char *key, bool *value, mote_error *error)
{
    json_t *member = json_object_get(line, key);
    if (member && !json_is_boolean(member)) {
        return set_error(error, MOTE_INVALID, "\"%s\" must be true or false", key);
    }
    *value = json_is_true(member);
    return MOTE_OK;
}

static mote_status add_specials(mote_model *model, struct ids *ids, mote_error *error)
{
    int32_t bos, eos;
    bool adds_bos, adds_eos;
    mote_status status = mote_token_specials(model, &bos, &eos, &adds_bos, &adds_eos, error);
    if (status == MOTE_OK && adds_bos && bos >= 0) {
        status = ids_prepend(ids, bos, error);
    }
    if (status == MOTE_OK && adds_eos && eos >= 0) {
        // Grow by prepending, then move: the last place is free.
        status = ids_prepend(ids, eos, error);
        if (status == MOTE_OK) {
            memmove(ids->values, ids->values + 1, (ids->count - 1) * sizeof *ids->values);
            ids->values[ids->count - 1] = eos;
        }
    }
    return status;
}

static json_t *tokenize_line(void *user, const json_t *line, mote_error *error)
{
    mote_model *model = user;
    json_t *text = json_object_get(line, "text");
    bool special = false, add_special = false;
    if (!json_is_string(text)) {
        set_error(error, MOTE_INVALID, "the line has no \"text\" that is a string");
        return NULL;
    }
    if (member_bool(line, "parse_special", &special, error) != MOTE_OK ||
        member_bool(line, "add_special", &add_special, error) != MOTE_OK) {
        return NULL;
    }
    struct ids ids = {0};
    mote_status status = ids_tokenize(model, json_string_value(text), json_string_length(text), special, &ids, error);
    if (status == MOTE_OK && add_special) {
        status = add_specials(model, &ids, error);
    }
    json_t *answer = status == MOTE_OK ? json_pack("{s:o}", "ids", ids_to_json(&ids)) : NULL;
    free(ids.values);
    return answer;
}

static mote_status member_ids(const json_t *line, struct ids *ids, mote_error *error)
{
    json_t *array = json_object_get(line, "ids");
    size_t count = json_array_size(array);
    if (!json_is_array(array)) {
        return set_error(error, MOTE_INVALID, "the line has no \"ids\" that is an array");
    }
    ids->values = malloc((count ? count : 1) * sizeof *ids->values);
    if (!ids->values) {
        return set_error(error, MOTE_MEMORY, "out of memory");
    }
    for (size_t i = 0; i < count; i++) {
        json_t *id = json_array_get(array, i);
        json_int_t value = json_integer_value(id);
        if (!json_is_integer(id) || value < 0 || value > INT32_MAX) {
            return set_error(error, MOTE_INVALID, "element %zu of \"ids\" is no token id", i);
        }
        ids->values[ids->count++] = (int32_t)value;
    }
    return MOTE_OK;
}

static json_t *decode_line(void *user, const json_t *line, mote_error *error)
{
    mote_model *model = user;
    struct ids ids = {0};
    char *text = NULL;
    size_t size = 0, bad;
    bool special = false;
    json_t *answer = NULL;
    if (member_ids(line, &ids, error) == MOTE_OK && member_bool(line, "special", &special, error) == MOTE_OK &&
        mote_detokenize(model, ids.values, ids.count, special, &text, &size, error) == MOTE_OK) {
        bool valid = utf8_check(text, size, &bad);
        answer = json_pack("{s:o, s:o}", "text", valid ? json_stringn(text ? text : "", size) : json_null(), "hex",
                           bytes_to_hex(text, size));
    }
    mote_free(text);
    free(ids.values);
    return answer;
}

// ---- one text

static int print_ids(const struct ids *ids)
{
    for (size_t i = 0; i < ids->count; i++) {
        printf("%s%d", i ? " " : "", ids->values[i]);
    }
    putchar('\n');
    return EXIT_DONE;
}

static int print_pieces(mote_model *model, const struct ids *ids)
{
    mote_error error = {0};
    for (size_t i = 0; i < ids->count; i++) {
        const char *piece;
        size_t size;
        if (mote_token_piece(model, ids->values[i], &piece, &size, &error) != MOTE_OK) {
            return fail(&error);
        }
        printf("%7d  ", ids->values[i]);
        print_escaped(stdout, piece, size);
        putchar('\n');
    }
    return EXIT_DONE;
}

static int print_tokens_json(mote_model *model, const struct ids *ids)
{
    mote_error error = {0};
    json_t *pieces = json_array();
    for (size_t i = 0; i < ids->count; i++) {
        const char *piece;
        size_t size, bad;
        if (mote_token_piece(model, ids->values[i], &piece, &size, &error) != MOTE_OK) {
            json_decref(pieces);
            return fail(&error);
        }
        // A file may hold pieces that are not UTF-8, which JSON cannot.
        json_array_append_new(pieces, utf8_check(piece, size, &bad) ? json_stringn(piece, size) : json_null());
    }
    json_t *answer = json_pack("{s:o, s:o}", "ids", ids_to_json(ids), "pieces", pieces);
    return print_json_line(answer) ? EXIT_DONE : fail_message("out of memory");
}

static int encode(const struct tokenize_options *options, mote_model *model, const struct text *text)
{
    struct ids ids;
    mote_error error = {0};
    mote_status status = ids_tokenize(model, text->data, text->size, options->special, &ids, &error);
    if (status == MOTE_OK && options->bos) {
        int32_t bos, eos;
        bool adds_bos, adds_eos;
        status = mote_token_specials(model, &bos, &eos, &adds_bos, &adds_eos, &error);
        if (status == MOTE_OK && bos < 0) {
            status = set_error(&error, MOTE_UNSUPPORTED, "--bos: the model has no BOS token");
        }
        if (status == MOTE_OK) {
            status = ids_prepend(&ids, bos, &error);
        }
    }
    int exit_code = EXIT_DONE;
    if (status != MOTE_OK) {
        exit_code = fail(&error);
    } else if (options->count) {
        printf("%zu\n", ids.count);
    } else if (options->json) {
        exit_code = print_tokens_json(model, &ids);
    } else {
        exit_code = options->ids ? print_ids(&ids) : print_pieces(model, &ids);
    }
    free(ids.values);
    return exit_code;
}

static int decode(const struct tokenize_options *options, mote_model *model, const struct text *text)
{
    struct ids ids = {0};
    mote_error error = {0};
    char *decoded = NULL;
    size_t size = 0;
    mote_status status = ids_parse(text, &ids, &error);
    if (status == MOTE_OK) {
        status = mote_detokenize(model, ids.values, ids.count, options->special, &decoded, &size, &error);
    }
    if (status == MOTE_OK) {
        print_model_text(stdout, decoded, size);
    }
    mote_free(decoded);
    free(ids.values);
    return status == MOTE_OK ? EXIT_DONE : fail(&error);
}

static int answer_text(const struct tokenize_options *options, mote_model *model, const char *given)
{
    struct text text;
    mote_error error = {0};
    if (text_read_prompt(given, options->file, false, &text, &error) != MOTE_OK) {
        return fail(&error);
    }
    int exit_code = options->decode ? decode(options, model, &text) : encode(options, model, &text);
    free(text.data);
    return exit_code;
}

static int tokenize_main(int argc, char **argv)
{
    struct tokenize_options options = {0};
    struct positionals positionals;
    int exit_code;
    if (!options_parse(&command_tokenize, argc, argv, &options, &positionals, &exit_code)) {
        return exit_code;
    }
    options.model = positional_model(&positionals, options.model);
    const char *given = positionals.count > 0 ? positionals.values[0] : NULL;
    if (!options.model) {
        return usage_error(&command_tokenize, "which model? Give a GGUF file");
    }
    if (options.ids + options.count + options.json + options.decode + options.jsonl > 1 &&
        !(options.decode && options.jsonl && !options.ids && !options.count && !options.json)) {
        return usage_error(&command_tokenize, "--ids, --count, --json, --decode and --jsonl exclude each other");
    }
    if (positionals.count > 1 || (given && (options.file || options.jsonl))) {
        return usage_error(&command_tokenize, "unexpected argument \"%s\": the text is given once",
                           positionals.values[positionals.count - 1]);
    }
    if (options.jsonl && (options.special || options.bos || options.file)) {
        return usage_error(&command_tokenize, "with --jsonl each line of standard input says what it wants: "
                                              "\"parse_special\", \"add_special\"");
    }
    struct compute_options compute = {.pre = options.pre};
    mote_model *model = NULL;
    mote_error error = {0};
    if (compute_open_model(options.model, &compute, &model, &error) != MOTE_OK) {
        return fail(&error);
    }
    exit_code = options.jsonl ? json_lines_run(options.decode ? decode_line : tokenize_line, model)
                              : answer_text(&options, model, given);
    mote_model_close(model);
    return exit_code;
}

const struct command command_tokenize = {
    .name = "tokenize",
    .summary = "turn text into token ids, and back",
    .arguments = "MODEL [TEXT]",
    .details =
        "Prints the tokens of TEXT (or of FILE, or of standard input): a line each, the id and the piece as the\n"
        "file stores it. Neither BOS nor EOS is added unless asked for.\n"
        "\n"
        "  mote tokenize MODEL.gguf \"Hello, world\"\n"
        "  mote tokenize MODEL.gguf --count -f book.txt\n"
        "  mote tokenize MODEL.gguf --decode \"1 2 3\"\n"
        "\n"
        "With --jsonl, each line {\"text\": …, \"parse_special\": bool, \"add_special\": bool} gives a line\n"
        "{\"ids\": […]}; with --jsonl --decode, each line {\"ids\": […], \"special\": bool} gives a line\n"
        "{\"text\": … or null where the bytes are no UTF-8, \"hex\": …}. A line that is wrong gives {\"error\": …},\n"
        "and the exit code is 1 in the end.",
    .options = tokenize_table,
    .max_positionals = 2,
    .main = tokenize_main,
};
