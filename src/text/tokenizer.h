// Text to token ids and back, for the vocabularies that GGUF files carry: `gpt2` (byte-level BPE with a
// pre-tokenizer) and `llama` (SentencePiece BPE with scores). A tokenizer is immutable: threads may share one.
#ifndef MOTE_TEXT_TOKENIZER_H
#define MOTE_TEXT_TOKENIZER_H

#include "base/buffer.h"
#include "base/error.h"
#include "gguf/gguf.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tokenizer;

enum token_type { // the numbers are GGUF's
    TOKEN_NORMAL = 1,
    TOKEN_UNKNOWN = 2,
    TOKEN_CONTROL = 3,
    TOKEN_USER_DEFINED = 4,
    TOKEN_UNUSED = 5,
    TOKEN_BYTE = 6,
};

// A part [begin, end) of a text, in bytes.
struct text_range {
    size_t begin;
    size_t end;
};

struct token_ids { // zeros: empty
    int32_t *ids;
    size_t count;
    size_t capacity;
};

// Reads tokenizer.ggml.* of an open file, which may be closed then. pre_override: a name for tokenizer.ggml.pre, or
// NULL. A gpt2 vocabulary without tokenizer.ggml.pre gets the pre-tokenizer "default", as llama.cpp has it for such
// files.
enum status tokenizer_create(const struct gguf *gguf, const char *pre_override, struct tokenizer **tokenizer,
                             struct error *error);
void tokenizer_destroy(struct tokenizer *tokenizer);

// Appends the ids of text to *ids. Control tokens are recognised in text only where the whole token lies within one
// of the `special` ranges (ascending, disjoint, touching ones merged; none: never); user-defined tokens everywhere.
// Neither BOS nor EOS is added. Bytes that are not UTF-8 are characters of their own, one each: gpt2 and llama with
// byte tokens keep them as bytes, so that they come back in decoding; other llama vocabularies give the unknown token.
// Bytes without a token vanish (gpt2). `llama` puts its space prefix at the start and behind every control token.
enum status tokenizer_encode(const struct tokenizer *tokenizer, const char *text, size_t size,
                             const struct text_range *special, size_t n_special, struct token_ids *ids,
                             struct error *error);
void token_ids_free(struct token_ids *ids);
bool token_ids_append(struct token_ids *ids, int32_t id);

// The bytes of ids, appended to *text; control and unknown tokens are written only where `special`. An id out of range
// is an error. The bytes need not be UTF-8.
enum status tokenizer_decode(const struct tokenizer *tokenizer, const int32_t *ids, size_t count, bool special,
                             struct buffer *text, struct error *error);

// Streaming: bytes of one id after another, holding back what is not yet a whole UTF-8 character. All that is written,
// joined, is what tokenizer_decode gives, with U+FFFD for each longest beginning of a character that goes wrong, and
// for each other byte that is not UTF-8.
struct detokenizer {
    const struct tokenizer *tokenizer;
    bool special; // write control tokens
    bool started; // something was written (a leading space prefix is dropped only before that)
    char held[4];
    size_t n_held;
};
void detokenizer_init(struct detokenizer *state, const struct tokenizer *tokenizer, bool special);
enum status detokenizer_add(struct detokenizer *state, int32_t id, struct buffer *text, struct error *error);
// What is still held back is not going to be completed: it is written as U+FFFD.
enum status detokenizer_finish(struct detokenizer *state, struct buffer *text, struct error *error);

size_t tokenizer_n_tokens(const struct tokenizer *tokenizer);
// The piece as the file stores it (▁ and byte-level letters unchanged).
struct gguf_string tokenizer_piece(const struct tokenizer *tokenizer, int32_t id);
enum token_type tokenizer_type(const struct tokenizer *tokenizer, int32_t id);
int32_t tokenizer_find(const struct tokenizer *tokenizer, const char *piece, size_t size); // −1: no such piece
int32_t tokenizer_bos(const struct tokenizer *tokenizer);                                  // −1: none
int32_t tokenizer_eos(const struct tokenizer *tokenizer);                                  // −1: none
bool tokenizer_adds_bos(const struct tokenizer *tokenizer); // by the file's key, else by the model's default
bool tokenizer_adds_eos(const struct tokenizer *tokenizer);
// Whether id ends a generation: eos, eot, eom, and known end-of-turn pieces (<|im_end|>, <end_of_turn>, <|eot_id|> …).
bool tokenizer_is_end(const struct tokenizer *tokenizer, int32_t id);
// Merge steps done so far by tokenizer_encode on this thread: a count for tests of linearity.
uint64_t tokenizer_merge_steps(void);

// The split before merging, for a pre-tokenizer by name: ranges of text, in order, covering all of it.
enum status pretokenize(const char *pre, const char *text, size_t size, struct text_range **pieces, size_t *n_pieces,
                        struct error *error);

#endif
