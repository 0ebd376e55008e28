// Byte-level BPE ("gpt2"): a pre-tokenizer cuts the text into words; a word's bytes are its first symbols; merges come
// in the order of the file's list. A byte without a token leaves the word, and merges go over the gap, as in Hugging
// Face's tokenizers. A merge that would give a control token is left out: text alone must never give one.
#include "text/tokenizer_internal.h"

#include "base/utf8.h"

#include <stdlib.h>
#include <string.h>

// GPT-2's alphabet: printable bytes of Latin-1 stand for themselves, the others for U+0100 and up, in order.
static bool is_printable(int byte)
{
    return (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte <= 0xac) || (byte >= 0xae && byte <= 0xff);
}

// The byte that a byte-level letter stands for, or -1.
static int letter_byte(uint32_t code_point)
{
    if (code_point < 0x100)
        return is_printable((int)code_point) ? (int)code_point : -1;
    if (code_point <= 0x120)
        return (int)(code_point - 0x100); // 00 to 20
    if (code_point <= 0x142)
        return (int)(code_point - 0x121 + 0x7f); // 7f to a0
    return code_point == 0x143 ? 0xad : -1;
}

bool bpe_append_text(struct buffer *text, const char *piece, size_t size)
{
    size_t begin = text->size;
    if (!buffer_reserve(text, size))
        return false;
    for (size_t i = 0; i < size;) {
        uint32_t code_point = 0;
        size_t length = utf8_decode(piece + i, size - i, &code_point);
        int byte = length ? letter_byte(code_point) : -1;
        if (byte < 0) {
            text->size = begin;
            return buffer_append(text, piece, size);
        }
        text->data[text->size++] = (char)byte;
        i += length;
    }
    return true;
}

static uint64_t merge_slot(const struct tokenizer *tokenizer, uint64_t pair)
{
    uint64_t hash = pair * tokenizer->merge_seed;
    return ((hash ^ hash >> 32) * 0x9e3779b97f4a7c15u) >> tokenizer->merge_shift;
}

// The entry of pair, or the free one where it belongs.
static struct merge_entry *find_merge(const struct tokenizer *tokenizer, uint64_t pair)
{
    uint64_t mask = UINT64_MAX >> tokenizer->merge_shift;
    uint64_t slot = merge_slot(tokenizer, pair);
    while (tokenizer->merges[slot].rank != NO_MERGE && tokenizer->merges[slot].pair != pair)
        slot = (slot + 1) & mask;
    return &tokenizer->merges[slot];
}

static uint64_t pair_of(int32_t left, int32_t right)
{
    return (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
}

static bool allocate_merges(struct tokenizer *tokenizer, uint64_t count)
{
    uint32_t bits = 4;
    while ((UINT64_C(1) << bits) < 2 * count)
        bits++;
    size_t bytes = sizeof *tokenizer->merges << bits;
    tokenizer->merges = malloc(bytes);
    if (!tokenizer->merges)
        return false;
    memset(tokenizer->merges, 0xff, bytes); // rank NO_MERGE everywhere
    tokenizer->merge_shift = 64 - bits;
    tokenizer->merge_seed = tokenizer->index.seed | 1;
    return true;
}

// The token of a part of a merge: by its text, else (tokens that merging does not give by default) by its piece.
static int32_t find_part(const struct tokenizer *tokenizer, const char *text, size_t text_size, const char *piece,
                         size_t piece_size)
{
    uint32_t id;
    if (text_size && map_find(&tokenizer->index, text, text_size, &id))
        return (int32_t)id;
    return map_find(&tokenizer->others, piece, piece_size, &id) ? (int32_t)id : -1;
}

// Adds merge number `rank`, the line "left right".
static enum status add_merge(struct tokenizer *tokenizer, uint32_t rank, struct gguf_string line, struct buffer *joined,
                             struct error *error)
{
    const char *space = line.size > 1 ? memchr(line.text + 1, ' ', line.size - 1) : NULL;
    size_t left_size = space ? (size_t)(space - line.text) : 0;
    size_t right_size = space ? line.size - left_size - 1 : 0;
    if (right_size == 0) {
        return error_set(error, STATUS_INVALID,
                         "tokenizer.ggml.merges[%u] is '%.100s': it should be two pieces with "
                         "a space between them",
                         rank, line.text);
    }
    // joined: the texts of both, their pieces as one, the text of that
    joined->size = 0;
    bpe_append_text(joined, line.text, left_size);
    size_t left_text = joined->size;
    bpe_append_text(joined, space + 1, right_size);
    size_t piece = joined->size;
    buffer_append(joined, line.text, left_size);
    buffer_append(joined, space + 1, right_size);
    size_t text = joined->size;
    if (!buffer_reserve(joined, left_size + right_size) ||
        !bpe_append_text(joined, joined->data + piece, left_size + right_size))
        return error_memory(error, "the tokenizer's merges");
    int32_t left = find_part(tokenizer, joined->data, left_text, line.text, left_size);
    int32_t right = find_part(tokenizer, joined->data + left_text, piece - left_text, space + 1, right_size);
    int32_t id = find_part(tokenizer, joined->data + text, joined->size - text, joined->data + piece, text - piece);
    if (left < 0 || right < 0 || id < 0) {
        return error_set(error, STATUS_INVALID,
                         "tokenizer.ggml.merges[%u] is '%.100s', but %s is not in "
                         "tokenizer.ggml.tokens",
                         rank, line.text,
                         left < 0    ? "its left piece"
                         : right < 0 ? "its right piece"
                                     : "the merged piece");
    }
    if (tokenizer->tokens[id].type == TOKEN_CONTROL)
        return STATUS_OK;
    struct merge_entry *entry = find_merge(tokenizer, pair_of(left, right));
    if (entry->rank == NO_MERGE)
        *entry = (struct merge_entry){pair_of(left, right), rank, id};
    return STATUS_OK;
}

static enum status load_merges(struct tokenizer *tokenizer, const struct gguf *gguf, struct error *error)
{
    const struct gguf_value *merges = NULL;
    enum status status = gguf_get_array(gguf, "tokenizer.ggml.merges", GGUF_STRING, true, &merges, error);
    if (status != STATUS_OK)
        return status;
    if (merges->count >= UINT32_MAX / 4)
        return error_set(error, STATUS_INVALID, "tokenizer.ggml.merges has too many elements");
    if (!allocate_merges(tokenizer, merges->count))
        return error_memory(error, "the tokenizer's merges");
    struct buffer joined = {0};
    for (uint32_t i = 0; i < merges->count && status == STATUS_OK; i++)
        status = add_merge(tokenizer, i, merges->strings[i], &joined, error);
    buffer_free(&joined);
    return status;
}

static const char *pre_name(const struct gguf *gguf, const char *pre_override, enum status *status, struct error *error)
{
    *status = STATUS_OK;
    if (pre_override)
        return pre_override;
    struct gguf_string name = {0};
    *status = gguf_get_string(gguf, "tokenizer.ggml.pre", false, &name, error);
    return name.text; // NULL where the key is missing: the default
}

enum status bpe_load(struct tokenizer *tokenizer, const struct gguf *gguf, const char *pre_override,
                     struct error *error)
{
    enum status status;
    const char *name = pre_name(gguf, pre_override, &status, error);
    if (status == STATUS_OK)
        status = pretokenizer_create(name, &tokenizer->pretokenizer, error);
    if (status != STATUS_OK)
        return status;
    tokenizer->adds_bos = pretokenizer_rules(tokenizer->pretokenizer)->adds_bos;
    for (int byte = 0; byte < 256; byte++) {
        char text = (char)byte;
        uint32_t id;
        tokenizer->byte_ids[byte] = map_find(&tokenizer->index, &text, 1, &id) ? (int32_t)id : -1;
    }
    return load_merges(tokenizer, gguf, error);
}

static void look_up_pair(struct encoder *encoder, const char *word, struct merge_symbol *left,
                         const struct merge_symbol *right)
{
    (void)word;
    const struct merge_entry *entry = find_merge(encoder->tokenizer, pair_of(left->id, right->id));
    left->rank = entry->rank;
    left->merged = entry->id;
}

static enum status merge_word(struct encoder *encoder, const char *word, size_t size)
{
    if (!merge_reserve(encoder, size))
        return encoder_fail_memory(encoder);
    encoder->n_symbols = 0;
    for (size_t i = 0; i < size; i++) {
        int32_t id = encoder->tokenizer->byte_ids[(unsigned char)word[i]];
        if (id >= 0)
            encoder->symbols[encoder->n_symbols++] = (struct merge_symbol){.id = id};
    }
    merge_symbols(encoder, word, look_up_pair);
    enum status status = STATUS_OK;
    for (size_t at = 0; at < encoder->n_symbols && status == STATUS_OK; at = encoder->symbols[at].next)
        status = encoder_append(encoder, encoder->symbols[at].id);
    return status;
}

static enum status encode_word(void *user, size_t begin, size_t end)
{
    struct encoder *encoder = user;
    const char *word = encoder->run + begin;
    size_t size = end - begin;
    enum status status;
    if (words_find(encoder, word, size, &status))
        return status;
    size_t first = encoder->ids->count;
    uint32_t id;
    if (pretokenizer_rules(encoder->tokenizer->pretokenizer)->whole_words && size <= encoder->tokenizer->longest_text &&
        map_find(&encoder->tokenizer->index, word, size, &id))
        status = encoder_append(encoder, (int32_t)id);
    else
        status = merge_word(encoder, word, size);
    if (status == STATUS_OK)
        words_add(encoder, word, size, first);
    return status;
}

enum status bpe_encode_run(struct encoder *encoder, const char *text, size_t size)
{
    encoder->run = text;
    return pretokenizer_split(encoder->tokenizer->pretokenizer, &encoder->pretokenizer, text, size, encode_word,
                              encoder, encoder->error);
}
