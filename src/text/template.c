// The public face of the interpreter: parse, run, and tell which bytes the template itself wrote.
#include "text/template.h"

#include "base/map.h"
#include "text/jinja_json.h"
#include "text/jinja_run.h"

#include <stdlib.h>
#include <string.h>

const struct template_limits template_limits_default = {
    .steps = 50 * 1000 * 1000, // some seconds; a template that is quadratic in its messages needs them
    .memory = (size_t)256 << 20,
    .output = (size_t)16 << 20,
    .depth = 1000,
};

void rendered_free(struct rendered *rendered)
{
    buffer_free(&rendered->text);
    free(rendered->trusted);
    *rendered = (struct rendered){0};
}

// bos_token, eos_token and the like come from the model's file, as the template does.
static bool is_token_name(const char *name)
{
    static const char ending[] = "_token";
    size_t size = strlen(name), ending_size = sizeof ending - 1;
    return size > ending_size && strcmp(name + size - ending_size, ending) == 0;
}

static bool fill_context(struct jinja *jinja, const json_t *input)
{
    json_t *object = (json_t *)(uintptr_t)input; // iterating does not change it
    if (!json_is_object(input))
        return jinja_fail(jinja, "the template's input is not a JSON object");
    if (!globals_add(jinja, jinja->context))
        return false;
    for (void *at = json_object_iter(object); at; at = json_object_iter_next(object, at)) {
        struct value key, value;
        const char *name = json_object_iter_key(at);
        struct slice text = {name, json_object_iter_key_len(at), NULL, false};
        if (!value_from_slice(jinja, text, false, &key) ||
            !json_to_value(jinja, json_object_iter_value(at), is_token_name(name), &value) ||
            !dict_set(jinja, jinja->context, key, value))
            return false;
    }
    return true;
}

static bool run(struct jinja *jinja, const char *source, size_t size, const json_t *input, struct jinja_syntax *syntax)
{
    jinja->context = dict_create(jinja, 0);
    jinja->root = scope_create(jinja, NULL);
    jinja->line = 1;
    return jinja->context && jinja->root && fill_context(jinja, input) && jinja_parse(jinja, source, size, syntax) &&
           scope_begin(jinja, jinja->root, &syntax->plan) &&
           scope_set(jinja, jinja->root, syntax->self, (struct value){.kind = VALUE_SELF}) &&
           jinja_execute(jinja, &syntax->body, jinja->root) != FLOW_FAILED;
}

static bool add_range(struct rendered *rendered, size_t *capacity, size_t begin, size_t end)
{
    void *ranges = rendered->trusted;
    if (!array_grow(&ranges, capacity, rendered->n_trusted + 1, sizeof *rendered->trusted))
        return false;
    rendered->trusted = ranges;
    rendered->trusted[rendered->n_trusted++] = (struct text_range){begin, end};
    return true;
}

// Copies the output out of the arena.
static bool take_output(const struct jinja_writer *output, struct rendered *rendered)
{
    size_t capacity = 0;
    if (!buffer_append(&rendered->text, output->size ? output->data : "", output->size))
        return false;
    if (!output->shadow)
        return output->size == 0 || !output->trusted || add_range(rendered, &capacity, 0, output->size);
    for (size_t begin = 0; begin < output->size;) {
        size_t end = begin + 1;
        while (end < output->size && output->shadow[end] == output->shadow[begin])
            end++;
        if (output->shadow[begin] && !add_range(rendered, &capacity, begin, end))
            return false;
        begin = end;
    }
    return true;
}

enum status template_render(const char *source, size_t size, const json_t *input, int64_t now,
                            const struct template_limits *limits, struct rendered *rendered, struct error *error)
{
    struct error unused;
    struct jinja jinja = {.limits = limits ? limits : &template_limits_default, .now = now};
    jinja.error = error ? error : &unused;
    jinja.seed = map_random_seed(&jinja);
    *rendered = (struct rendered){0};
    arena_init(&jinja.arena, jinja.limits->memory);
    struct jinja_writer output = {.jinja = &jinja, .limit = jinja.limits->output};
    struct jinja_syntax syntax = {0};
    jinja.output = &output;
    jinja.syntax = &syntax;
    if (run(&jinja, source, size, input, &syntax) && !take_output(&output, rendered)) {
        rendered_free(rendered);
        jinja.status = error_memory(jinja.error, "the rendered template");
    }
    arena_free(&jinja.arena);
    return jinja.status;
}
