// What a user asks the sources of products to be rounded to: a list of rules as text.
#include "engine/engine.h"

#include "base/buffer.h"

#include <string.h>

// PRECISION_COUNT: "default". False: no precision.
static bool parse_name(const char *text, size_t size, enum precision *precision)
{
    for (int i = 0; i <= PRECISION_COUNT; i++) {
        const char *name = i == PRECISION_COUNT ? "default" : precision_name((enum precision)i);
        if (strlen(name) == size && memcmp(name, text, size) == 0) {
            *precision = (enum precision)i;
            return true;
        }
    }
    return false;
}

// "bf16" or "ffn_down=bf16"
static enum status parse_rule(const char *text, size_t size, struct precision_rule *rule, struct error *error)
{
    const char *equals = memchr(text, '=', size);
    size_t kind = equals == NULL ? 0 : (size_t)(equals - text), name = equals == NULL ? 0 : kind + 1;
    *rule = (struct precision_rule){.precision = PRECISION_COUNT};
    int shown = (int)(size < 64 ? size : 64);
    if ((equals != NULL && kind == 0) || kind >= sizeof(rule->kind))
        return error_set(error, STATUS_INVALID,
                         "'%.*s' in a list of precisions has no kind of tensor before the '=': give one such as "
                         "ffn_down=bf16",
                         shown, text);
    memcpy(rule->kind, text, kind);
    if (!parse_name(text + name, size - name, &rule->precision))
        return error_set(error, STATUS_INVALID,
                         "'%.*s' is no precision of sources: give default, f32, bf16, f16 or q8, or one for a kind of "
                         "tensor, such as ffn_down=bf16",
                         shown, text);
    return STATUS_OK;
}

enum status precision_parse(const char *text, struct engine_settings *settings, bool *all_f32, struct error *error)
{
    settings->n_rules = 0;
    *all_f32 = false;
    for (const char *rule = text; rule != NULL && *rule != '\0';) {
        size_t size = strcspn(rule, ",");
        if (settings->n_rules == MAX_PRECISION_RULES)
            return error_set(error, STATUS_INVALID, "there are more than %d precisions in a list", MAX_PRECISION_RULES);
        struct precision_rule *next = &settings->rules[settings->n_rules];
        enum status status = parse_rule(rule, size, next, error);
        if (status != STATUS_OK)
            return status;
        if (next->kind[0] == '\0')
            *all_f32 = next->precision == PRECISION_F32;
        settings->n_rules++;
        rule += size + (rule[size] == ',' && rule[size + 1] != '\0');
        if (*rule == ',') // nothing behind the last comma
            return error_set(error, STATUS_INVALID, "a list of precisions has a comma with nothing behind it");
    }
    return STATUS_OK;
}

// ---- kinds ----

// The weights of node `node` that take a source: at most two. Returns how many.
static size_t product_weights(const struct node *node, const struct tensor *weights[2])
{
    size_t n = 0;
    if (node->op == OP_MATMUL || node->op == OP_MATMUL_HEADS || node->op == OP_MUL_MAT_ID ||
        node->op == OP_MUL_MAT_ID_SUM)
        weights[n++] = node->sources[0];
    if (node->op == OP_MUL_MAT_ID_SUM && node->sources[4] != NULL)
        weights[n++] = node->sources[4];
    return n;
}

// Whether the list, words between blanks, has the word.
static bool has_word(const struct buffer *list, const char *word, size_t size)
{
    for (size_t i = 0; i < list->size;) {
        const char *blank = memchr(list->data + i, ' ', list->size - i);
        size_t length = blank == NULL ? list->size - i : (size_t)(blank - list->data) - i;
        if (length == size && memcmp(list->data + i, word, size) == 0)
            return true;
        i += length + 1;
    }
    return false;
}

static enum status fail_kind(const char *kind, const struct graph *graph, struct error *error)
{
    struct buffer kinds = {0};
    for (size_t i = 0; i < graph->n_nodes; i++) {
        const struct tensor *weights[2];
        size_t n = product_weights(graph->nodes[i], weights);
        for (size_t w = 0; w < n; w++) {
            size_t size;
            const char *word = tensor_kind(weights[w]->name, &size);
            if (!has_word(&kinds, word, size)) {
                if (kinds.size != 0)
                    buffer_append_byte(&kinds, ' ');
                buffer_append(&kinds, word, size);
            }
        }
    }
    enum status status =
        kinds.failed ? error_memory(error, "the kinds of tensors")
                     : error_set(error, STATUS_INVALID,
                                 "a precision is asked for tensors '%s', but no product of the model has a weight of "
                                 "that kind: there are %s, and their first words (the KV cache is set by kv)",
                                 kind, kinds.data == NULL ? "none" : kinds.data);
    buffer_free(&kinds);
    return status;
}

enum status precision_check(const struct engine_settings *settings, const struct graph *graph, struct error *error)
{
    for (size_t r = 0; r < settings->n_rules; r++) {
        bool fits = settings->rules[r].kind[0] == '\0';
        for (size_t i = 0; i < graph->n_nodes && !fits; i++) {
            const struct tensor *weights[2];
            size_t n = product_weights(graph->nodes[i], weights);
            for (size_t w = 0; w < n; w++)
                fits = fits || precision_rule_fits(&settings->rules[r], weights[w]->name);
        }
        if (!fits)
            return fail_kind(settings->rules[r].kind, graph, error);
    }
    return STATUS_OK;
}
