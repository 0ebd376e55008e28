// Vocabularies made in memory, for tests and fuzzers: a struct gguf that holds tokenizer.ggml.* and no file.
#ifndef MOTE_TESTS_VOCABULARY_H
#define MOTE_TESTS_VOCABULARY_H

#include "base/utf8.h"
#include "gguf/gguf.h"
#include "text/tokenizer.h"

#include <stdlib.h>
#include <string.h>

struct vocabulary {
    struct gguf gguf;
    struct arena arena;
    struct gguf_value values[32];
    struct gguf_string tokens[1024];
    float scores[1024];
    int32_t types[1024];
    struct gguf_string merges[1024];
    uint32_t n_tokens, n_merges;
};

static inline struct gguf_string vocabulary_string(struct vocabulary *vocabulary, const char *text, size_t size)
{
    return (struct gguf_string){arena_copy_text(&vocabulary->arena, text, size), size};
}

static inline void vocabulary_add(struct vocabulary *vocabulary, struct gguf_value value, const char *key)
{
    struct gguf *gguf = &vocabulary->gguf;
    if (gguf->n_values == 32)
        abort();
    value.key = vocabulary_string(vocabulary, key, strlen(key));
    vocabulary->values[gguf->n_values] = value;
    gguf->values = vocabulary->values;
    if (!map_add(&gguf->value_index, value.key.text, value.key.size, (uint32_t)gguf->n_values++, NULL, NULL))
        abort();
}

static inline void vocabulary_text(struct vocabulary *vocabulary, const char *key, const char *text)
{
    struct gguf_value value = {.type = GGUF_STRING, .string = vocabulary_string(vocabulary, text, strlen(text))};
    vocabulary_add(vocabulary, value, key);
}

static inline void vocabulary_u32(struct vocabulary *vocabulary, const char *key, uint32_t number)
{
    vocabulary_add(vocabulary, (struct gguf_value){.type = GGUF_U32, .u = number}, key);
}

static inline void vocabulary_bool(struct vocabulary *vocabulary, const char *key, bool value)
{
    vocabulary_add(vocabulary, (struct gguf_value){.type = GGUF_BOOL, .u = value}, key);
}

static inline void vocabulary_array(struct vocabulary *vocabulary, const char *key, enum gguf_type element,
                                    const void *data, uint64_t count)
{
    vocabulary_add(vocabulary,
                   (struct gguf_value){.type = GGUF_ARRAY, .element = element, .count = count, .array = data}, key);
}

static inline int32_t vocabulary_token_bytes(struct vocabulary *vocabulary, const char *piece, size_t size,
                                             int32_t type, float score)
{
    uint32_t id = vocabulary->n_tokens++;
    if (id == 1024)
        abort();
    vocabulary->tokens[id] = vocabulary_string(vocabulary, piece, size);
    vocabulary->types[id] = type;
    vocabulary->scores[id] = score;
    return (int32_t)id;
}

static inline int32_t vocabulary_token(struct vocabulary *vocabulary, const char *piece, int32_t type, float score)
{
    return vocabulary_token_bytes(vocabulary, piece, strlen(piece), type, score);
}

// A merge "left right", with the token that it gives.
static inline void vocabulary_merge(struct vocabulary *vocabulary, const char *left, const char *right)
{
    char joined[256];
    size_t size = strlen(left);
    memcpy(joined, left, size);
    memcpy(joined + size, right, strlen(right) + 1);
    vocabulary_token(vocabulary, joined, TOKEN_NORMAL, 0);
    memmove(joined + size + 1, joined + size, strlen(right) + 1);
    joined[size] = ' ';
    if (vocabulary->n_merges == 1024)
        abort();
    vocabulary->merges[vocabulary->n_merges++] = vocabulary_string(vocabulary, joined, strlen(joined));
}

static inline void vocabulary_init(struct vocabulary *vocabulary)
{
    memset(vocabulary, 0, sizeof *vocabulary);
    arena_init(&vocabulary->arena, 0);
}

// The letters of byte-level BPE, in the order of the bytes.
static inline void vocabulary_byte_letters(struct vocabulary *vocabulary)
{
    uint32_t moved = 0x100;
    for (uint32_t byte = 0; byte < 256; byte++) {
        bool kept = (byte > 0x20 && byte < 0x7f) || (byte > 0xa0 && byte != 0xad);
        char letter[4];
        size_t size = utf8_encode(kept ? byte : moved++, letter);
        vocabulary_token_bytes(vocabulary, letter, size, TOKEN_NORMAL, 0);
    }
}

// SentencePiece's tokens for bytes.
static inline void vocabulary_byte_tokens(struct vocabulary *vocabulary)
{
    static const char digits[] = "0123456789ABCDEF";
    for (uint32_t byte = 0; byte < 256; byte++) {
        char piece[] = {'<', '0', 'x', digits[byte >> 4], digits[byte & 15], '>', '\0'};
        vocabulary_token(vocabulary, piece, TOKEN_BYTE, 0);
    }
}

// Announces the arrays: to be called when they are filled.
static inline void vocabulary_finish(struct vocabulary *vocabulary, const char *model)
{
    if (model)
        vocabulary_text(vocabulary, "tokenizer.ggml.model", model);
    vocabulary_array(vocabulary, "tokenizer.ggml.tokens", GGUF_STRING, vocabulary->tokens, vocabulary->n_tokens);
    vocabulary_array(vocabulary, "tokenizer.ggml.token_type", GGUF_I32, vocabulary->types, vocabulary->n_tokens);
    if (model && strcmp(model, "llama") == 0)
        vocabulary_array(vocabulary, "tokenizer.ggml.scores", GGUF_F32, vocabulary->scores, vocabulary->n_tokens);
    else
        vocabulary_array(vocabulary, "tokenizer.ggml.merges", GGUF_STRING, vocabulary->merges, vocabulary->n_merges);
}

static inline void vocabulary_free(struct vocabulary *vocabulary)
{
    map_free(&vocabulary->gguf.value_index);
    arena_free(&vocabulary->arena);
}

// Byte-level BPE over all bytes, with a few words, control tokens and user-defined ones.
static inline void vocabulary_make_bpe(struct vocabulary *vocabulary)
{
    vocabulary_init(vocabulary);
    vocabulary_byte_letters(vocabulary);
    static const char *const merges[][2] = {
        {"t", "h"},
        {"th", "e"},
        {"\xc4\xa0", "the"},
        {"a", "a"},
        {"aa", "aa"},
        {"aaaa", "aaaa"},
        {"\xc4\xa0", "\xc4\xa0"},
        {"\xc4\x8a", "\xc4\x8a"},
        {"1", "2"},
        {"12", "3"},
        {"\xc3\xa4", "\xc2\xb8"},
        {"e", "r"},
        {"r", "e"},
        {"\xc3\xbf", "\xc3\xbf"},
    };
    for (size_t i = 0; i < sizeof merges / sizeof *merges; i++)
        vocabulary_merge(vocabulary, merges[i][0], merges[i][1]);
    vocabulary_token(vocabulary, "<|end|>", TOKEN_CONTROL, 0);
    vocabulary_token(vocabulary, "<|endoftext|>", TOKEN_CONTROL, 0);
    vocabulary_token(vocabulary, "<|", TOKEN_CONTROL, 0);
    vocabulary_token(vocabulary, "<tool>", TOKEN_USER_DEFINED, 0);
    vocabulary_token(vocabulary, "<toolbox>", TOKEN_USER_DEFINED, 0);
    vocabulary_token(vocabulary, "  ", TOKEN_USER_DEFINED, 0);
    vocabulary_token(vocabulary, "", TOKEN_NORMAL, 0);
    vocabulary_token(vocabulary, "the", TOKEN_NORMAL, 0);
}

// SentencePiece over all bytes, with a few pieces, control tokens, user-defined and unused ones.
static inline void vocabulary_make_spm(struct vocabulary *vocabulary)
{
    vocabulary_init(vocabulary);
    vocabulary_token(vocabulary, "<unk>", TOKEN_UNKNOWN, 0);
    vocabulary_token(vocabulary, "<s>", TOKEN_CONTROL, 0);
    vocabulary_token(vocabulary, "</s>", TOKEN_CONTROL, 0);
    vocabulary_byte_tokens(vocabulary);
    static const char *const pieces[] = {"\xe2\x96\x81",
                                         "t",
                                         "h",
                                         "e",
                                         "th",
                                         "he",
                                         "the",
                                         "\xe2\x96\x81the",
                                         "a",
                                         "aa",
                                         "aaaa",
                                         "\xe2\x96\x81\xe2\x96\x81",
                                         "\xe4\xb8\xad",
                                         "\xe4\xb8\xad\xe4\xb8\xad",
                                         "e\xe2\x96\x81",
                                         "e\xe2\x96\x81t",
                                         "12",
                                         "1",
                                         "2"};
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++)
        vocabulary_token(vocabulary, pieces[i], TOKEN_NORMAL, -(float)i);
    vocabulary_token(vocabulary, "ha", TOKEN_UNUSED, 3);
    vocabulary_token(vocabulary, "aha", TOKEN_UNUSED, 2);
    vocabulary_token(vocabulary, "<tool>", TOKEN_USER_DEFINED, 0);
    vocabulary_token(vocabulary, "   ", TOKEN_USER_DEFINED, 0);
    vocabulary_token(vocabulary, "\n\n", TOKEN_USER_DEFINED, 0);
}

#endif
