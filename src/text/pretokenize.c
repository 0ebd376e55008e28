// Splits texts by the rules of pretokenize_rules.c with PCRE2. Every rule is compiled once, to machine code where the
// machine allows it. Since no rule repeats a group, a match takes constant stack however long it is; the limits of
// PCRE2 are lifted, so that a long run of one character is a slow match at worst and never a failed one.
#include "text/pretokenize.h"

#include "base/utf8.h"
#include "text/tokenizer.h"

#include <stdlib.h>
#include <string.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

struct pretokenizer {
    const struct pretokenizer_rules *rules;
    size_t n_rules;
    pcre2_code *codes[PRETOKENIZER_MAX_RULES];
    bool has_machine_code[PRETOKENIZER_MAX_RULES];
};

// What stands in for a byte that is not UTF-8: like U+FFFD neither letter nor number nor space, but one byte.
enum { STAND_IN = '~' };

static bool names_contain(const char *names, const char *name)
{
    size_t size = strlen(name);
    for (const char *at = names; size && (at = strstr(at, name)); at += size) {
        bool begins = at == names || at[-1] == ' ';
        if (begins && (at[size] == ' ' || at[size] == '\0') && !memchr(name, ' ', size))
            return true;
    }
    return false;
}

static const struct pretokenizer_rules *find_rules(const char *name)
{
    for (const struct pretokenizer_rules *rules = pretokenizer_table; rules->names; rules++) {
        if (names_contain(rules->names, name))
            return rules;
    }
    return NULL;
}

static enum status unknown_name(const char *name, struct error *error)
{
    struct buffer known = {0};
    for (const struct pretokenizer_rules *rules = pretokenizer_table; rules->names; rules++) {
        if (known.size)
            buffer_append_byte(&known, ' ');
        buffer_append_text(&known, rules->names);
    }
    enum status status =
        error_set(error, STATUS_UNSUPPORTED, "unknown pre-tokenizer '%.100s' (tokenizer.ggml.pre); known ones: %s",
                  name, known.data ? known.data : "");
    buffer_free(&known);
    return status;
}

enum status pretokenizer_create(const char *name, struct pretokenizer **pretokenizer, struct error *error)
{
    *pretokenizer = NULL;
    const struct pretokenizer_rules *rules = find_rules(name ? name : "default");
    if (!rules)
        return unknown_name(name, error);
    struct pretokenizer *made = calloc(1, sizeof *made);
    if (!made)
        return error_memory(error, "the pre-tokenizer");
    made->rules = rules;
    for (; rules->expressions[made->n_rules]; made->n_rules++) {
        const char *expression = rules->expressions[made->n_rules];
        int code;
        PCRE2_SIZE offset;
        pcre2_code *compiled = pcre2_compile((PCRE2_SPTR)expression, PCRE2_ZERO_TERMINATED,
                                             PCRE2_UTF | PCRE2_UCP | PCRE2_NO_UTF_CHECK, &code, &offset, NULL);
        if (!compiled) {
            pretokenizer_destroy(made);
            return error_set(error, code == PCRE2_ERROR_NOMEMORY ? STATUS_MEMORY : STATUS_UNSUPPORTED,
                             "this PCRE2 does not compile the pre-tokenizer '%.100s' (error %d at %zu)", name, code,
                             (size_t)offset);
        }
        made->codes[made->n_rules] = compiled;
        made->has_machine_code[made->n_rules] = pcre2_jit_compile(compiled, PCRE2_JIT_COMPLETE) == 0;
    }
    *pretokenizer = made;
    return STATUS_OK;
}

void pretokenizer_destroy(struct pretokenizer *pretokenizer)
{
    if (!pretokenizer)
        return;
    for (size_t i = 0; i < pretokenizer->n_rules; i++)
        pcre2_code_free(pretokenizer->codes[i]);
    free(pretokenizer);
}

const struct pretokenizer_rules *pretokenizer_rules(const struct pretokenizer *pretokenizer)
{
    return pretokenizer->rules;
}

void pretokenizer_scratch_free(struct pretokenizer_scratch *scratch)
{
    pcre2_match_data_free(scratch->match);
    pcre2_match_context_free(scratch->context);
    buffer_free(&scratch->stand_in);
    *scratch = (struct pretokenizer_scratch){0};
}

static bool prepare_scratch(struct pretokenizer_scratch *scratch)
{
    if (!scratch->match)
        scratch->match = pcre2_match_data_create(1, NULL);
    if (!scratch->context) {
        scratch->context = pcre2_match_context_create(NULL);
        if (scratch->context) {
            pcre2_set_match_limit(scratch->context, UINT32_MAX);
            pcre2_set_depth_limit(scratch->context, UINT32_MAX);
        }
    }
    return scratch->match && scratch->context;
}

struct split {
    const struct pretokenizer *pretokenizer;
    const struct pretokenizer_scratch *scratch;
    const char *text; // valid UTF-8
    pretokenizer_emit *emit;
    void *user;
    struct error *error;
};

// The first match of a rule in text[begin, end), looking from `from` on: [match[0], match[1]) relative to begin.
// False where there is none; *code is PCRE2's.
static bool find_match(const struct split *split, size_t rule, size_t begin, size_t end, size_t from, size_t match[2],
                       int *code)
{
    PCRE2_SPTR subject = (PCRE2_SPTR)(split->text + begin);
    pcre2_match_data *data = split->scratch->match;
    *code = PCRE2_ERROR_JIT_STACKLIMIT;
    if (split->pretokenizer->has_machine_code[rule]) {
        *code = pcre2_jit_match(split->pretokenizer->codes[rule], subject, end - begin, from, 0, data,
                                split->scratch->context);
    }
    if (*code == PCRE2_ERROR_JIT_STACKLIMIT) {
        *code = pcre2_match(split->pretokenizer->codes[rule], subject, end - begin, from,
                            PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, data, split->scratch->context);
    }
    if (*code < 0)
        return false;
    const PCRE2_SIZE *offsets = pcre2_get_ovector_pointer(data);
    match[0] = offsets[0];
    match[1] = offsets[1];
    return match[1] > match[0];
}

// Splits the piece [begin, end) by the rules from `rule` on. As deep as there are rules.
static enum status split_piece(const struct split *split, size_t rule, size_t begin, size_t end)
{
    if (rule == split->pretokenizer->n_rules)
        return split->emit(split->user, begin, end);
    size_t done = 0;
    size_t match[2];
    int code = 0;
    enum status status = STATUS_OK;
    while (status == STATUS_OK && begin + done < end && find_match(split, rule, begin, end, done, match, &code)) {
        if (match[0] > done)
            status = split_piece(split, rule + 1, begin + done, begin + match[0]);
        if (status == STATUS_OK)
            status = split_piece(split, rule + 1, begin + match[0], begin + match[1]);
        done = match[1];
    }
    if (status == STATUS_OK && code < 0 && code != PCRE2_ERROR_NOMATCH) {
        return error_set(split->error, code == PCRE2_ERROR_NOMEMORY ? STATUS_MEMORY : STATUS_UNSUPPORTED,
                         "the pre-tokenizer failed inside PCRE2 (error %d)", code);
    }
    if (status == STATUS_OK && begin + done < end)
        status = split_piece(split, rule + 1, begin + done, end);
    return status;
}

// A copy of text whose bytes that are not UTF-8 are STAND_IN, so that offsets stay what they are.
static bool replace_invalid(struct buffer *copy, const char *text, size_t size)
{
    copy->size = 0;
    if (!buffer_append(copy, text, size))
        return false;
    size_t bad;
    for (size_t at = 0; !utf8_valid(copy->data + at, size - at, &bad); at += bad + 1)
        copy->data[at + bad] = STAND_IN;
    return true;
}

enum status pretokenizer_split(const struct pretokenizer *pretokenizer, struct pretokenizer_scratch *scratch,
                               const char *text, size_t size, pretokenizer_emit *emit, void *user, struct error *error)
{
    if (size == 0)
        return STATUS_OK;
    if (!prepare_scratch(scratch))
        return error_memory(error, "the pre-tokenizer");
    if (!utf8_valid(text, size, NULL)) {
        if (!replace_invalid(&scratch->stand_in, text, size)) {
            buffer_free(&scratch->stand_in);
            return error_memory(error, "the pre-tokenizer");
        }
        text = scratch->stand_in.data;
    }
    struct split split = {pretokenizer, scratch, text, emit, user, error};
    return split_piece(&split, 0, 0, size);
}

struct piece_list {
    struct text_range *pieces;
    size_t count;
    size_t capacity;
    struct error *error;
};

static enum status append_piece(void *user, size_t begin, size_t end)
{
    struct piece_list *list = user;
    void *grown = list->pieces;
    if (!array_grow(&grown, &list->capacity, list->count + 1, sizeof *list->pieces))
        return error_memory(list->error, "the pieces of a text");
    list->pieces = grown;
    list->pieces[list->count++] = (struct text_range){begin, end};
    return STATUS_OK;
}

enum status pretokenize(const char *pre, const char *text, size_t size, struct text_range **pieces, size_t *n_pieces,
                        struct error *error)
{
    *pieces = NULL;
    *n_pieces = 0;
    struct pretokenizer *pretokenizer;
    enum status status = pretokenizer_create(pre, &pretokenizer, error);
    if (status != STATUS_OK)
        return status;
    struct pretokenizer_scratch scratch = {0};
    struct piece_list list = {.error = error};
    status = pretokenizer_split(pretokenizer, &scratch, text, size, append_piece, &list, error);
    pretokenizer_scratch_free(&scratch);
    pretokenizer_destroy(pretokenizer);
    if (status != STATUS_OK) {
        free(list.pieces);
        return status;
    }
    *pieces = list.pieces;
    *n_pieces = list.count;
    return STATUS_OK;
}
