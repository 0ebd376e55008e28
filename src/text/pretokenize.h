// Pre-tokenizers: the split of a text into pieces that merges never cross, by the expressions that the vendors
// published. A rule is applied to every piece that the rule before it left; text between matches stays a piece.
#ifndef MOTE_TEXT_PRETOKENIZE_H
#define MOTE_TEXT_PRETOKENIZE_H

#include "base/buffer.h"
#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>

enum { PRETOKENIZER_MAX_RULES = 6 };

// What a value of tokenizer.ggml.pre means: one row of the table in pretokenize_rules.c.
struct pretokenizer_rules {
    const char *names; // the names that share these rules, separated by spaces; the first is the usual one
    bool whole_words;  // a piece that is a token is taken as it is, without merging ("ignore_merges")
    bool adds_bos;     // where the file does not say whether BOS is added
    const char *expressions[PRETOKENIZER_MAX_RULES + 1]; // PCRE2 syntax, NULL behind the last
};

// Ends with an entry whose names are NULL.
extern const struct pretokenizer_rules pretokenizer_table[];

struct pretokenizer; // compiled rules: immutable

// name NULL: "default". An unknown name is an error that lists the known ones.
enum status pretokenizer_create(const char *name, struct pretokenizer **pretokenizer, struct error *error);
void pretokenizer_destroy(struct pretokenizer *pretokenizer); // NULL is allowed
const struct pretokenizer_rules *pretokenizer_rules(const struct pretokenizer *pretokenizer);

// Receives the pieces [begin, end) of a text, in order; another status than STATUS_OK ends the split.
typedef enum status pretokenizer_emit(void *user, size_t begin, size_t end);

// What one thread needs to split texts; zeros are ready.
struct pretokenizer_scratch {
    void *match;            // pcre2_match_data
    void *context;          // pcre2_match_context
    struct buffer stand_in; // a text whose bytes that are not UTF-8 were replaced
};
void pretokenizer_scratch_free(struct pretokenizer_scratch *scratch);

// Splits text: the pieces cover all of it. Bytes that are not UTF-8 count as a symbol each.
enum status pretokenizer_split(const struct pretokenizer *pretokenizer, struct pretokenizer_scratch *scratch,
                               const char *text, size_t size, pretokenizer_emit *emit, void *user, struct error *error);

#endif
