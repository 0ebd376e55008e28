// Encoding: the text is cut at special tokens, and what lies between is encoded by the kind of the vocabulary.
#include "text/tokenizer.h"

#include "text/tokenizer_internal.h"

#include <stdlib.h>
#include <string.h>

void token_ids_free(struct token_ids *ids)
{
    free(ids->ids);
    *ids = (struct token_ids){0};
}

bool token_ids_append(struct token_ids *ids, int32_t id)
{
    if (ids->count == ids->capacity) {
        void *grown = ids->ids;
        if (!array_grow(&grown, &ids->capacity, ids->count + 1, sizeof *ids->ids))
            return false;
        ids->ids = grown;
    }
    ids->ids[ids->count++] = id;
    return true;
}

enum status encoder_fail_memory(struct encoder *encoder)
{
    return error_memory(encoder->error, "the tokens of a text");
}

enum status encoder_append(struct encoder *encoder, int32_t id)
{
    return token_ids_append(encoder->ids, id) ? STATUS_OK : encoder_fail_memory(encoder);
}

static void encoder_free(struct encoder *encoder)
{
    free(encoder->symbols);
    free(encoder->heap);
    free(encoder->words);
    free(encoder->unused_left);
    free(encoder->halves);
    buffer_free(&encoder->rewritten);
    pretokenizer_scratch_free(&encoder->pretokenizer);
}

// The text between special tokens.
static enum status encode_run(struct encoder *encoder, const char *text, size_t size)
{
    encoder->after_unknown = false;
    if (size == 0)
        return STATUS_OK;
    return encoder->tokenizer->kind == KIND_BYTE_LEVEL ? bpe_encode_run(encoder, text, size)
                                                       : spm_encode_run(encoder, text, size);
}

// How far a control token that begins at `at` may reach; *range: the first one that ends behind `at`.
static size_t control_limit(const struct text_range *special, size_t n_special, size_t *range, size_t at)
{
    while (*range < n_special && special[*range].end <= at)
        ++*range;
    return *range < n_special && special[*range].begin <= at ? special[*range].end - at : 0;
}

// Cuts the text at control tokens; with byte-level BPE at user-defined tokens too. (SentencePiece finds those in the
// normalized text: see tokenizer_spm.c.)
static enum status encode(struct encoder *encoder, const char *text, size_t size, const struct text_range *special,
                          size_t n_special)
{
    const struct tokenizer *tokenizer = encoder->tokenizer;
    bool spaces = tokenizer->kind == KIND_SENTENCE_PIECE;
    bool users = tokenizer->kind == KIND_BYTE_LEVEL;
    enum status status = STATUS_OK;
    size_t begin = 0; // of the run
    size_t range = 0;
    for (size_t at = 0; at < size && status == STATUS_OK;) {
        unsigned char byte = (unsigned char)text[at];
        bool begins = tokenizer->special.first[byte] || (spaces && byte == 0xe2);
        if (users && !begins) {
            at++;
            continue;
        }
        size_t limit = control_limit(special, n_special, &range, at);
        if (limit == 0 && !users) { // nothing is found before the next range
            at = range < n_special ? special[range].begin : size;
            continue;
        }
        size_t length = 0;
        int32_t id = -1;
        if (begins)
            id = trie_find(&tokenizer->special, text + at, size - at, users, limit, spaces, &length);
        if (id < 0) {
            at++;
            continue;
        }
        status = encode_run(encoder, text + begin, at - begin);
        if (status == STATUS_OK)
            status = encoder_append(encoder, id);
        at += length;
        begin = at;
    }
    return status == STATUS_OK && begin < size ? encode_run(encoder, text + begin, size - begin) : status;
}

// A cache of words pays from some hundred bytes on; its size follows the text's.
static void make_words(struct encoder *encoder, size_t size)
{
    enum { LEAST = 512, FEWEST_WORDS = 64, MOST_WORDS = 16384 };
    if (size < LEAST)
        return;
    size_t n_words = FEWEST_WORDS;
    while (n_words < MOST_WORDS && n_words < size / 8)
        n_words *= 2;
    encoder->words = calloc(n_words, sizeof *encoder->words);
    encoder->n_words = encoder->words ? n_words : 0; // without memory for it, encoding is slower and right
}

enum status tokenizer_encode(const struct tokenizer *tokenizer, const char *text, size_t size,
                             const struct text_range *special, size_t n_special, struct token_ids *ids,
                             struct error *error)
{
    if (size == 0)
        return STATUS_OK;
    struct encoder encoder = {.tokenizer = tokenizer, .ids = ids, .error = error};
    enum status status = STATUS_OK;
    if (tokenizer->has_unused) {
        encoder.unused_left = calloc(tokenizer->n_tokens, sizeof *encoder.unused_left);
        if (!encoder.unused_left)
            status = encoder_fail_memory(&encoder);
    }
    make_words(&encoder, size);
    size_t before = ids->count;
    if (status == STATUS_OK)
        status = encode(&encoder, text, size, special, n_special);
    if (status != STATUS_OK)
        ids->count = before;
    encoder_free(&encoder);
    return status;
}

size_t tokenizer_n_tokens(const struct tokenizer *tokenizer)
{
    return tokenizer->n_tokens;
}

struct gguf_string tokenizer_piece(const struct tokenizer *tokenizer, int32_t id)
{
    const struct token *token = &tokenizer->tokens[id];
    return (struct gguf_string){tokenizer->bytes.data + token->piece, token->piece_size};
}

enum token_type tokenizer_type(const struct tokenizer *tokenizer, int32_t id)
{
    return tokenizer->tokens[id].type;
}

int32_t tokenizer_bos(const struct tokenizer *tokenizer)
{
    return tokenizer->bos;
}

int32_t tokenizer_eos(const struct tokenizer *tokenizer)
{
    return tokenizer->eos;
}

bool tokenizer_adds_bos(const struct tokenizer *tokenizer)
{
    return tokenizer->adds_bos;
}

bool tokenizer_adds_eos(const struct tokenizer *tokenizer)
{
    return tokenizer->adds_eos;
}

bool tokenizer_is_end(const struct tokenizer *tokenizer, int32_t id)
{
    for (size_t i = 0; i < tokenizer->n_ends; i++) {
        if (tokenizer->ends[i] == id)
            return true;
    }
    return false;
}
