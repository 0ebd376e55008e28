// mote template: renders chat templates.
#include "commands.h"
#include "compute.h"
#include "input.h"
#include "output.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

struct template_options {
    const char *model, *file, *template, *now;
    bool jsonl;
};

static const struct option template_table[] = {
    {OPTION(TEXT, "-m --model", "FILE", "the model whose template is used (or the first argument)",
            struct template_options, model)},
    {OPTION(TEXT, "-f --file", "FILE", "the input, JSON (default and -: standard input)", struct template_options,
            file)},
    {OPTION(TEXT, "--template", "FILE", "a template in a file, instead of the model's", struct template_options,
            template)},
    {OPTION(TEXT, "--now", "TIME", "the time that strftime_now sees: seconds since 1970, or 2026-01-02T03:04:05 (UTC)",
            struct template_options, now)},
    {OPTION(FLAG, "--jsonl", NULL, "answer a case a line of standard input (see above)", struct template_options,
            jsonl)},
    {.kind = OPTION_END},
};

struct renderer {
    mote_model *model;  // NULL: none
    struct text source; // data NULL: the model's own template
    int64_t now;
};

// source, where it is not NULL, goes before the renderer's own.
static mote_status render(const struct renderer *renderer, const json_t *source, const json_t *input,
                          mote_rendered *rendered, mote_error *error)
{
    const char *text = source ? json_string_value(source) : renderer->source.data;
    size_t size = source ? json_string_length(source) : renderer->source.size;
    if (!text && !renderer->model) {
        return set_error(error, MOTE_INVALID,
                         "there is no template: give \"template\" in the line, a model or --template");
    }
    char *variables = json_dumps(input, JSON_COMPACT);
    if (!variables) {
        return set_error(error, MOTE_MEMORY, "out of memory");
    }
    mote_status status =
        mote_template_render(renderer->model, text, size, variables, strlen(variables), renderer->now, rendered, error);
    free(variables);
    return status;
}

static json_t *template_line(void *user, const json_t *line, mote_error *error)
{
    const struct renderer *renderer = user;
    json_t *source = json_object_get(line, "template");
    json_t *input = json_object_get(line, "input");
    source = json_is_null(source) ? NULL : source;
    if (source && !json_is_string(source)) {
        set_error(error, MOTE_INVALID, "\"template\" must be a string");
        return NULL;
    }
    if (!json_is_object(input)) {
        set_error(error, MOTE_INVALID, "the line has no \"input\" that is an object");
        return NULL;
    }
    mote_rendered rendered = {0};
    if (render(renderer, source, input, &rendered, error) != MOTE_OK) {
        // What a template refuses is its answer, and no failure of ours.
        return json_pack("{s:s}", "error", error->message);
    }
    json_t *text = json_stringn(rendered.text, rendered.size);
    if (!text) {
        set_error(error, MOTE_INVALID, "the output is not UTF-8");
    }
    json_t *answer = text ? json_pack("{s:o}", "output", text) : NULL;
    mote_rendered_free(&rendered);
    return answer;
}

static int render_file(const struct renderer *renderer, const char *path)
{
    struct text text;
    mote_error error = {0};
    if (text_read_file(path ? path : "-", &text, &error) != MOTE_OK) {
        return fail(&error);
    }
    json_error_t problem;
    json_t *input =
        json_loadb(text.data, text.size, JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &problem);
    free(text.data);
    if (json_is_array(input)) { // the messages alone
        input = json_pack("{s:o, s:b}", "messages", input, "add_generation_prompt", 1);
    }
    if (!input) {
        return fail_message("the input is no valid JSON: line %d, column %d: %s", problem.line, problem.column,
                            problem.text);
    }
    if (!json_is_object(input)) {
        json_decref(input);
        return fail_message("the input must be a JSON object of the template's variables, or an array of messages");
    }
    mote_rendered rendered = {0};
    mote_status status = render(renderer, NULL, input, &rendered, &error);
    json_decref(input);
    if (status != MOTE_OK) {
        return fail(&error);
    }
    print_model_text(stdout, rendered.text, rendered.size);
    mote_rendered_free(&rendered);
    return EXIT_DONE;
}

static int template_main(int argc, char **argv)
{
    struct template_options options = {0};
    struct positionals positionals;
    struct renderer renderer = {.now = (int64_t)time(NULL)};
    int exit_code;
    if (!options_parse(&command_template, argc, argv, &options, &positionals, &exit_code)) {
        return exit_code;
    }
    options.model = positional_model(&positionals, options.model);
    if (positionals.count > 0) {
        return usage_error(&command_template, "unexpected argument \"%s\"", positionals.values[0]);
    }
    if (options.now && !parse_time(options.now, &renderer.now)) {
        return usage_error(&command_template,
                           "--now cannot be \"%.100s\": give seconds since 1970, or a time such as "
                           "2026-01-02T03:04:05 (UTC)",
                           options.now);
    }
    if (options.jsonl && options.file) {
        return usage_error(&command_template, "--jsonl reads standard input: -f cannot be given with it");
    }
    if (!options.model && !options.template && !options.jsonl) {
        return usage_error(&command_template, "which template? Give a model or --template FILE");
    }
    mote_error error = {0};
    const struct compute_options compute = {0};
    mote_status status = MOTE_OK;
    if (options.template) {
        status = text_read_file(options.template, &renderer.source, &error);
    }
    if (status == MOTE_OK && options.model) {
        status = compute_open_model(options.model, &compute, &renderer.model, &error);
    }
    if (status == MOTE_OK) {
        exit_code = options.jsonl ? json_lines_run(template_line, &renderer) : render_file(&renderer, options.file);
    } else {
        exit_code = fail(&error);
    }
    mote_model_close(renderer.model);
    free(renderer.source.data);
    return exit_code;
}

const struct command command_template = {
    .name = "template",
    .summary = "render a chat template",
    .arguments = "[MODEL]",
    .details = "Prints what the chat template of MODEL (or of --template) makes of its input: a JSON object of the\n"
               "template's variables (messages, tools, add_generation_prompt, …), or an array of messages.\n"
               "\n"
               "  mote template MODEL.gguf -f chat.json\n"
               "\n"
               "With --jsonl, each line {\"template\": TEXT (default: the model's), \"input\": {…}} gives a line\n"
               "{\"output\": …} or {\"error\": …}.",
    .options = template_table,
    .max_positionals = 1,
    .main = template_main,
};
