// SentencePiece BPE ("llama"): no pre-tokenizer; characters are the first symbols; of all neighbours that make a token
// together, those of the highest score merge first. Texts have a space where SentencePiece has U+2581.
//
// A word here is a part of a run that merges cannot leave: between its bytes and its neighbours' lies a pair of bytes
// that occurs inside no token. So words can be merged apart, and remembered, with the result of the whole.
#include "text/tokenizer_internal.h"

#include "base/utf8.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static bool starts_character(unsigned char byte)
{
    return (byte & 0xc0) != 0x80;
}

static bool pair_is_inner(const struct tokenizer *tokenizer, unsigned char before, unsigned char after)
{
    return tokenizer->inner_pairs[before << 2 | after >> 6] >> (after & 63) & 1;
}

// A rank that orders as scores do, the highest first; equal scores have equal ranks.
static uint32_t score_rank(float score)
{
    uint32_t bits;
    score += 0.0f; // -0 becomes 0
    memcpy(&bits, &score, sizeof bits);
    uint32_t ascending = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
    return ~ascending; // never NO_MERGE: that would be a NaN
}

static enum status load_scores(struct tokenizer *tokenizer, const struct gguf *gguf, struct error *error)
{
    const struct gguf_value *scores = NULL;
    enum status status = gguf_get_array(gguf, "tokenizer.ggml.scores", GGUF_F32, true, &scores, error);
    if (status != STATUS_OK)
        return status;
    if (scores->count != tokenizer->n_tokens) {
        return error_set(error, STATUS_INVALID, "tokenizer.ggml.scores has %llu elements for %u tokens",
                         (unsigned long long)scores->count, tokenizer->n_tokens);
    }
    const float *values = scores->array;
    for (uint32_t i = 0; i < tokenizer->n_tokens; i++) {
        if (isnan(values[i]))
            return error_set(error, STATUS_INVALID, "tokenizer.ggml.scores[%u] is NaN", i);
        tokenizer->tokens[i].rank = score_rank(values[i]);
    }
    return STATUS_OK;
}

static void find_inner_pairs(struct tokenizer *tokenizer)
{
    for (uint32_t id = 0; id < tokenizer->n_tokens; id++) {
        const struct token *token = &tokenizer->tokens[id];
        if (token->type != TOKEN_NORMAL && token->type != TOKEN_UNUSED && token->type != TOKEN_USER_DEFINED)
            continue;
        const unsigned char *text = (const unsigned char *)tokenizer->bytes.data + token->text;
        for (uint32_t i = 1; i < token->text_size; i++) {
            if (starts_character(text[i]))
                tokenizer->inner_pairs[text[i - 1] << 2 | text[i] >> 6] |= UINT64_C(1) << (text[i] & 63);
        }
    }
}

static void find_byte_tokens(struct tokenizer *tokenizer)
{
    for (size_t byte = 0; byte < 256; byte++)
        tokenizer->byte_ids[byte] = -1;
    size_t n_found = 0;
    for (uint32_t id = 0; id < tokenizer->n_tokens; id++) {
        if (tokenizer->tokens[id].type != TOKEN_BYTE)
            continue;
        unsigned char byte = (unsigned char)tokenizer->bytes.data[tokenizer->tokens[id].text];
        n_found += tokenizer->byte_ids[byte] < 0;
        if (tokenizer->byte_ids[byte] < 0)
            tokenizer->byte_ids[byte] = (int32_t)id;
    }
    tokenizer->has_byte_tokens = n_found == 256;
}

enum status spm_load(struct tokenizer *tokenizer, const struct gguf *gguf, struct error *error)
{
    tokenizer->adds_bos = true;
    tokenizer->adds_space_prefix = true;
    enum status status = load_scores(tokenizer, gguf, error);
    if (status == STATUS_OK) {
        status = gguf_get_bool(gguf, "tokenizer.ggml.add_space_prefix", false, &tokenizer->adds_space_prefix, error);
    }
    if (status == STATUS_OK) {
        status = gguf_get_bool(gguf, "tokenizer.ggml.remove_extra_whitespaces", false, &tokenizer->removes_extra_spaces,
                               error);
    }
    if (status != STATUS_OK)
        return status;
    tokenizer->inner_pairs = calloc(65536 / 64, sizeof *tokenizer->inner_pairs);
    if (!tokenizer->inner_pairs)
        return error_memory(error, "the tokenizer");
    find_inner_pairs(tokenizer);
    find_byte_tokens(tokenizer);
    return STATUS_OK;
}

static void look_up_text(struct encoder *encoder, const char *word, struct merge_symbol *left,
                         const struct merge_symbol *right)
{
    const struct tokenizer *tokenizer = encoder->tokenizer;
    uint32_t id;
    uint32_t size = right->end - left->begin;
    if (size > tokenizer->longest_text || !map_find(&tokenizer->index, word + left->begin, size, &id))
        return;
    left->rank = tokenizer->tokens[id].rank;
    left->merged = (int32_t)id;
    if (tokenizer->tokens[id].type == TOKEN_UNUSED && encoder->unused_left)
        encoder->unused_left[id] = left->end - left->begin;
}

// A character that is no token: its bytes where there are byte tokens, else the unknown token, once for a run of them.
static enum status append_unknown(struct encoder *encoder, const char *text, size_t size)
{
    const struct tokenizer *tokenizer = encoder->tokenizer;
    enum status status = STATUS_OK;
    if (tokenizer->has_byte_tokens) {
        for (size_t i = 0; i < size && status == STATUS_OK; i++)
            status = encoder_append(encoder, tokenizer->byte_ids[(unsigned char)text[i]]);
    } else if (tokenizer->unknown >= 0 && !encoder->after_unknown) {
        status = encoder_append(encoder, tokenizer->unknown);
        encoder->after_unknown = true;
    }
    return status;
}

static bool push_half(struct encoder *encoder, size_t *n_halves, size_t begin, size_t end)
{
    void *grown = encoder->halves;
    bool fits = array_grow(&grown, &encoder->halves_capacity, *n_halves + 1, sizeof *encoder->halves);
    encoder->halves = grown;
    if (fits)
        encoder->halves[(*n_halves)++] = (struct text_range){begin, end};
    return fits;
}

// Appends what [begin, end) of a word became. An unused token is taken apart into what it was merged from.
static enum status append_symbol(struct encoder *encoder, const char *word, size_t begin, size_t end)
{
    const struct tokenizer *tokenizer = encoder->tokenizer;
    size_t n_halves = 0;
    enum status status = STATUS_OK;
    for (;;) {
        uint32_t id;
        bool known = map_find(&tokenizer->index, word + begin, end - begin, &id);
        size_t left =
            known && tokenizer->tokens[id].type == TOKEN_UNUSED && encoder->unused_left ? encoder->unused_left[id] : 0;
        if (left > 0 && left < end - begin) {
            if (!push_half(encoder, &n_halves, begin + left, end))
                return encoder_fail_memory(encoder);
            end = begin + left;
            continue;
        }
        if (known) {
            encoder->after_unknown = false;
            status = encoder_append(encoder, (int32_t)id);
        } else {
            status = append_unknown(encoder, word + begin, end - begin);
        }
        if (status != STATUS_OK || n_halves == 0)
            return status;
        begin = encoder->halves[--n_halves].begin;
        end = encoder->halves[n_halves].end;
    }
}

static enum status merge_word(struct encoder *encoder, const char *word, size_t size)
{
    if (!merge_reserve(encoder, size))
        return encoder_fail_memory(encoder);
    encoder->n_symbols = 0;
    for (size_t i = 0; i < size;) {
        uint32_t code_point;
        size_t length = utf8_decode(word + i, size - i, &code_point);
        length = length ? length : 1; // a byte that is not UTF-8 is a character of its own
        encoder->symbols[encoder->n_symbols++] =
            (struct merge_symbol){.begin = (uint32_t)i, .end = (uint32_t)(i + length), .id = -1};
        i += length;
    }
    merge_symbols(encoder, word, look_up_text);
    enum status status = STATUS_OK;
    for (size_t at = 0; at < encoder->n_symbols && status == STATUS_OK; at = encoder->symbols[at].next) {
        const struct merge_symbol *symbol = &encoder->symbols[at];
        if (symbol->id >= 0 && encoder->tokenizer->tokens[symbol->id].type != TOKEN_UNUSED) {
            encoder->after_unknown = false;
            status = encoder_append(encoder, symbol->id);
        } else {
            status = append_symbol(encoder, word, symbol->begin, symbol->end);
        }
    }
    return status;
}

static enum status encode_word(struct encoder *encoder, const char *word, size_t size)
{
    enum status status;
    if (words_find(encoder, word, size, &status))
        return status;
    size_t first = encoder->ids->count;
    status = merge_word(encoder, word, size);
    // What unknown characters give depends on those before them, unless they give bytes.
    if (status == STATUS_OK && encoder->tokenizer->has_byte_tokens)
        words_add(encoder, word, size, first);
    return status;
}

static bool append_spaces_normalized(const struct tokenizer *tokenizer, struct buffer *to, const char *text,
                                     size_t size, bool *after_space)
{
    for (size_t i = 0; i < size; i++) {
        bool mark = text[i] == '\xe2' && size - i >= 3 && memcmp(text + i, "\xe2\x96\x81", 3) == 0;
        bool space = mark || text[i] == ' ';
        if (mark)
            i += 2;
        if (space && !mark && *after_space && tokenizer->removes_extra_spaces)
            continue;
        *after_space = space && !mark; // SentencePiece counts spaces before it turns them into marks
        if (!buffer_append_byte(to, space ? ' ' : (unsigned char)text[i]))
            return false;
    }
    return true;
}

// Writes the run as SentencePiece's normalizer does into encoder->rewritten.
static bool normalize_spaces(struct encoder *encoder, const char *text, size_t size)
{
    const struct tokenizer *tokenizer = encoder->tokenizer;
    struct buffer *to = &encoder->rewritten;
    to->size = 0;
    bool after_space = true; // so that leading spaces go, where extra ones do
    if (!buffer_reserve(to, size + 1) || (tokenizer->adds_space_prefix && !buffer_append_byte(to, ' ')) ||
        !append_spaces_normalized(tokenizer, to, text, size, &after_space))
        return false;
    while (tokenizer->removes_extra_spaces && to->size && to->data[to->size - 1] == ' ')
        to->size--;
    return true;
}

// Cuts the normalized run at user-defined tokens and where words end.
static enum status encode_normalized(struct encoder *encoder, const char *text, size_t size)
{
    const struct tokenizer *tokenizer = encoder->tokenizer;
    enum status status = STATUS_OK;
    size_t begin = 0; // of the word
    for (size_t at = 0; at < size && status == STATUS_OK;) {
        size_t length = 0;
        int32_t id = -1;
        if (tokenizer->special.first[(unsigned char)text[at]])
            id = trie_find(&tokenizer->special, text + at, size - at, true, 0, false, &length);
        at += id < 0;
        bool ends = id >= 0 || at == size ||
                    (starts_character((unsigned char)text[at]) &&
                     !pair_is_inner(tokenizer, (unsigned char)text[at - 1], (unsigned char)text[at]));
        if (!ends)
            continue;
        if (at > begin)
            status = encode_word(encoder, text + begin, at - begin);
        if (status == STATUS_OK && id >= 0) {
            encoder->after_unknown = false;
            status = encoder_append(encoder, id);
        }
        at += length;
        begin = at;
    }
    return status;
}

enum status spm_encode_run(struct encoder *encoder, const char *text, size_t size)
{
    const struct tokenizer *tokenizer = encoder->tokenizer;
    if (tokenizer->adds_space_prefix || tokenizer->removes_extra_spaces || memmem(text, size, "\xe2\x96\x81", 3)) {
        if (!normalize_spaces(encoder, text, size)) {
            buffer_free(&encoder->rewritten);
            return encoder_fail_memory(encoder);
        }
        text = encoder->rewritten.data;
        size = encoder->rewritten.size;
    }
    return encode_normalized(encoder, text, size);
}
