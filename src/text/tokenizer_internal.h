// What the files of the tokenizer share. A token has two forms: its piece, as the file stores it, and its text, the
// bytes that it stands for (byte-level letters turned into bytes, U+2581 into a space). Encoding and decoding work on
// texts only.
#ifndef MOTE_TEXT_TOKENIZER_INTERNAL_H
#define MOTE_TEXT_TOKENIZER_INTERNAL_H

#include "base/buffer.h"
#include "base/map.h"
#include "text/pretokenize.h"
#include "text/tokenizer.h"
#include "text/trie.h"

enum tokenizer_kind {
    KIND_BYTE_LEVEL,     // tokenizer.ggml.model "gpt2"
    KIND_SENTENCE_PIECE, // "llama"
};

struct token {
    uint32_t piece; // offsets into tokenizer.bytes; a NUL follows a piece
    uint32_t piece_size;
    uint32_t text;
    uint32_t text_size;
    uint32_t rank; // of a SentencePiece merge that makes this token: the lowest is merged first
    enum token_type type;
};

// A merge of byte-level BPE. Where rank is NO_MERGE, the entry is free.
struct merge_entry {
    uint64_t pair; // left id << 32 | right id
    uint32_t rank;
    int32_t id; // what the pair becomes
};

struct tokenizer {
    enum tokenizer_kind kind;
    struct buffer bytes; // pieces and texts
    struct token *tokens;
    uint32_t n_tokens;
    struct map
        index; // text → id of tokens that merging gives: normal and unused ones, SentencePiece's user-defined ones
    struct map others;         // piece → id of all others. In both, of equal keys the lowest id stays
    struct trie special;       // control and user-defined tokens, by text
    int32_t bos, eos, unknown; // -1: none
    bool adds_bos, adds_eos;
    int32_t *ends; // ids that end a generation
    size_t n_ends;
    int32_t byte_ids[256]; // the token of each byte, -1: none
    uint32_t longest_text;

    // KIND_BYTE_LEVEL
    struct pretokenizer *pretokenizer;
    struct merge_entry *merges; // open addressing
    uint32_t merge_shift;       // 64 - log2 of its capacity
    uint64_t merge_seed;        // odd

    // KIND_SENTENCE_PIECE
    bool adds_space_prefix;
    bool removes_extra_spaces;
    bool has_byte_tokens;  // all 256
    bool has_unused;       // some merges give unused tokens, which are taken apart again
    uint64_t *inner_pairs; // 65536 bits: whether byte b follows byte a inside a token, b the first of a character
};

enum { NO_MERGE = 0xffffffffu };

struct merge_symbol {
    uint32_t begin, end; // of the word
    uint32_t previous, next;
    uint32_t rank;  // of the merge with the next symbol, or NO_MERGE
    int32_t merged; // what that merge gives
    int32_t id;     // -1: a character that has not been looked up
};

// Words that this call has seen: their ids lie in the output already.
struct word_entry {
    uint64_t key[3]; // the word, padded with zeros
    uint32_t first;  // index of its first id
    uint8_t count;
    uint8_t size; // 0: a free entry
};

// The state of one call of tokenizer_encode.
struct encoder {
    const struct tokenizer *tokenizer;
    struct token_ids *ids;
    struct error *error;
    struct merge_symbol *symbols;
    size_t n_symbols, symbols_capacity;
    uint64_t *heap; // rank << 32 | left symbol
    size_t n_heap, heap_capacity;
    struct word_entry *words;
    size_t n_words; // a power of two; 0: no cache
    struct pretokenizer_scratch pretokenizer;
    const char *run;           // the text between special tokens that is being split
    struct buffer rewritten;   // a run whose spaces were normalized
    bool after_unknown;        // the last id stands for unknown characters: more of them add none
    uint32_t *unused_left;     // [n_tokens] size of the left half of an unused token, as last seen
    struct text_range *halves; // a stack of parts of an unused token
    size_t halves_capacity;
};

// tokenizer_bpe.c
enum status bpe_load(struct tokenizer *tokenizer, const struct gguf *gguf, const char *pre_override,
                     struct error *error);
// Appends the bytes that a piece of byte-level letters stands for; a piece with any other character is text as it is.
bool bpe_append_text(struct buffer *text, const char *piece, size_t size);
enum status bpe_encode_run(struct encoder *encoder, const char *text, size_t size);

// tokenizer_spm.c
enum status spm_load(struct tokenizer *tokenizer, const struct gguf *gguf, struct error *error);
// A run lies between control tokens and the ends of the text; SentencePiece would see it as a text of its own.
enum status spm_encode_run(struct encoder *encoder, const char *text, size_t size);

// tokenizer_merge.c
// Fills rank and merged of left, for the merge of left and right.
typedef void merge_lookup(struct encoder *encoder, const char *word, struct merge_symbol *left,
                          const struct merge_symbol *right);
// Makes room for the symbols of a word of size bytes; false where memory ran out.
bool merge_reserve(struct encoder *encoder, size_t size);
// Merges encoder->symbols[0 .. n_symbols), lowest rank first, leftmost first among equal ranks. What remains is linked
// from symbol 0 by `next`; the last one's is n_symbols.
void merge_symbols(struct encoder *encoder, const char *word, merge_lookup *lookup);
// Whether the word is in the cache: its ids are appended, or *status is why not.
bool words_find(struct encoder *encoder, const char *word, size_t size, enum status *status);
// Remembers the ids from `first` on as those of word.
void words_add(struct encoder *encoder, const char *word, size_t size, size_t first);

// tokenizer.c
enum status encoder_append(struct encoder *encoder, int32_t id);
enum status encoder_fail_memory(struct encoder *encoder);

#endif
