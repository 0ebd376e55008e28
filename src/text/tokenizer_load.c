// Reads tokenizer.ggml.* of a GGUF file. Everything is checked: types and lengths of arrays, ids against the number of
// tokens, names of byte tokens. Two tokens of the same piece are allowed; the first one is used.
#include "text/tokenizer_internal.h"

#include "base/checked.h"

#include <stdlib.h>
#include <string.h>

static const char mark[] = "\xe2\x96\x81"; // U+2581: a space, in SentencePiece's pieces

static bool is_integer(enum gguf_type type)
{
    return type <= GGUF_I32 || type == GGUF_U64 || type == GGUF_I64;
}

static enum status load_types(struct tokenizer *tokenizer, const struct gguf *gguf, struct error *error)
{
    static const char key[] = "tokenizer.ggml.token_type";
    const struct gguf_value *types = gguf_find(gguf, key);
    for (uint32_t i = 0; i < tokenizer->n_tokens; i++)
        tokenizer->tokens[i].type = TOKEN_NORMAL;
    if (!types)
        return STATUS_OK;
    if (types->type != GGUF_ARRAY || !is_integer(types->element))
        return error_set(error, STATUS_INVALID, "%s should be an array of i32, but its type is %s", key,
                         gguf_type_name(types->type == GGUF_ARRAY ? types->element : types->type));
    if (types->count != tokenizer->n_tokens)
        return error_set(error, STATUS_INVALID, "%s has %llu elements for %u tokens", key,
                         (unsigned long long)types->count, tokenizer->n_tokens);
    for (uint32_t i = 0; i < tokenizer->n_tokens; i++) {
        int64_t type = gguf_array_integer(types, i);
        if (type < 0 || type > TOKEN_BYTE)
            return error_set(error, STATUS_INVALID, "%s[%u] is %lld: no type of token", key, i, (long long)type);
        if (type > 0) // 0: undefined, as normal
            tokenizer->tokens[i].type = (enum token_type)type;
    }
    return STATUS_OK;
}

static int hex_digit(char letter)
{
    if (letter >= '0' && letter <= '9')
        return letter - '0';
    if (letter >= 'A' && letter <= 'F')
        return letter - 'A' + 10;
    return letter >= 'a' && letter <= 'f' ? letter - 'a' + 10 : -1;
}

// The byte of a piece such as <0x0A>, or -1.
static int byte_of_piece(struct gguf_string piece)
{
    if (piece.size != 6 || memcmp(piece.text, "<0x", 3) != 0 || piece.text[5] != '>')
        return -1;
    int high = hex_digit(piece.text[3]);
    int low = hex_digit(piece.text[4]);
    return high < 0 || low < 0 ? -1 : high * 16 + low;
}

static bool append_with_spaces(struct buffer *text, const char *piece, size_t size)
{
    if (!buffer_reserve(text, size))
        return false;
    for (size_t i = 0; i < size;) {
        bool is_mark = size - i >= 3 && memcmp(piece + i, mark, 3) == 0;
        text->data[text->size++] = is_mark ? ' ' : piece[i];
        i += is_mark ? 3 : 1;
    }
    return true;
}

// Appends the text of a piece that merging may give.
static bool append_text(const struct tokenizer *tokenizer, struct buffer *text, const char *piece, size_t size)
{
    return tokenizer->kind == KIND_BYTE_LEVEL ? bpe_append_text(text, piece, size)
                                              : append_with_spaces(text, piece, size);
}

// Copies the piece of token id and writes its text. bytes has room for both.
static enum status add_token(struct tokenizer *tokenizer, uint32_t id, struct gguf_string piece, struct error *error)
{
    struct token *token = &tokenizer->tokens[id];
    struct buffer *bytes = &tokenizer->bytes;
    token->piece = (uint32_t)bytes->size;
    token->piece_size = (uint32_t)piece.size;
    memcpy(bytes->data + bytes->size, piece.text, piece.size);
    bytes->size += piece.size;
    bytes->data[bytes->size++] = '\0';
    token->text = (uint32_t)bytes->size;
    int byte = token->type == TOKEN_BYTE ? byte_of_piece(piece) : -1;
    if (token->type == TOKEN_BYTE && byte < 0 && tokenizer->kind == KIND_SENTENCE_PIECE) {
        return error_set(error, STATUS_INVALID,
                         "tokenizer.ggml.tokens[%u] is of type byte, but '%.100s' is no name of a byte such as <0x0A>",
                         id, piece.text);
    }
    if (byte >= 0) {
        bytes->data[bytes->size++] = (char)byte;
    } else if (token->type == TOKEN_CONTROL || token->type == TOKEN_UNKNOWN ||
               (token->type == TOKEN_USER_DEFINED && tokenizer->kind == KIND_BYTE_LEVEL) ||
               (tokenizer->kind == KIND_SENTENCE_PIECE && !memmem(piece.text, piece.size, mark, 3))) {
        token->text = token->piece;
        token->text_size = token->piece_size;
        return STATUS_OK;
    } else if (!append_text(tokenizer, bytes, piece.text, piece.size)) {
        return error_memory(error, "the tokenizer's tokens");
    }
    token->text_size = (uint32_t)(bytes->size - token->text);
    return STATUS_OK;
}

static bool is_merged(const struct tokenizer *tokenizer, const struct token *token)
{
    const char *piece = tokenizer->bytes.data + token->piece;
    switch (token->type) {
    case TOKEN_CONTROL:
    case TOKEN_UNKNOWN:
    case TOKEN_BYTE:
        return false;
    case TOKEN_USER_DEFINED:
        if (tokenizer->kind == KIND_BYTE_LEVEL)
            return false;
        break;
    default:
        break;
    }
    // SentencePiece never sees a space: a piece with one is no result of merging.
    return tokenizer->kind == KIND_BYTE_LEVEL || !memchr(piece, ' ', token->piece_size);
}

static bool index_tokens(struct tokenizer *tokenizer)
{
    size_t n_merged = 0;
    for (uint32_t id = 0; id < tokenizer->n_tokens; id++)
        n_merged += is_merged(tokenizer, &tokenizer->tokens[id]);
    if (!map_reserve(&tokenizer->index, n_merged) || !map_reserve(&tokenizer->others, tokenizer->n_tokens - n_merged))
        return false;
    bool spaces = tokenizer->kind == KIND_SENTENCE_PIECE;
    for (uint32_t id = 0; id < tokenizer->n_tokens; id++) {
        const struct token *token = &tokenizer->tokens[id];
        const char *text = tokenizer->bytes.data + token->text;
        const char *piece = tokenizer->bytes.data + token->piece;
        bool merged = is_merged(tokenizer, token);
        if (merged ? !map_add(&tokenizer->index, text, token->text_size, id, NULL, NULL)
                   : !map_add(&tokenizer->others, piece, token->piece_size, id, NULL, NULL))
            return false;
        if (merged && token->text_size > tokenizer->longest_text)
            tokenizer->longest_text = token->text_size;
        if (merged && token->type == TOKEN_UNUSED)
            tokenizer->has_unused = tokenizer->kind == KIND_SENTENCE_PIECE;
        bool control = token->type == TOKEN_CONTROL;
        if ((control || token->type == TOKEN_USER_DEFINED) && token->piece_size > 0 &&
            !trie_add(&tokenizer->special, piece, token->piece_size, (int32_t)id, control, spaces))
            return false;
    }
    return true;
}

int32_t tokenizer_find(const struct tokenizer *tokenizer, const char *piece, size_t size)
{
    uint32_t id;
    if (map_find(&tokenizer->others, piece, size, &id))
        return (int32_t)id;
    struct buffer text = {0};
    bool known = append_text(tokenizer, &text, piece, size) && map_find(&tokenizer->index, text.data, text.size, &id);
    bool searched = !text.failed;
    buffer_free(&text);
    if (searched && !known)
        return -1;
    // Another piece may have the same text; then only a look at all of them tells.
    for (uint32_t i = known ? id : 0; i < tokenizer->n_tokens; i++) {
        const struct token *token = &tokenizer->tokens[i];
        if (token->piece_size == size && memcmp(tokenizer->bytes.data + token->piece, piece, size) == 0)
            return (int32_t)i;
    }
    return -1;
}

static enum status load_tokens(struct tokenizer *tokenizer, const struct gguf *gguf, struct error *error)
{
    const struct gguf_value *tokens = NULL;
    enum status status = gguf_get_array(gguf, "tokenizer.ggml.tokens", GGUF_STRING, true, &tokens, error);
    if (status != STATUS_OK)
        return status;
    uint64_t n_bytes = 0; // of pieces, their NULs, and texts
    for (uint64_t i = 0; i < tokens->count; i++) {
        if (!checked_add(n_bytes, 2 * (uint64_t)tokens->strings[i].size + 1, &n_bytes))
            n_bytes = UINT64_MAX;
    }
    if (tokens->count == 0 || tokens->count > INT32_MAX || n_bytes > UINT32_MAX)
        return error_set(error, STATUS_INVALID, "tokenizer.ggml.tokens %s", tokens->count ? "is too big" : "is empty");
    tokenizer->n_tokens = (uint32_t)tokens->count;
    tokenizer->tokens = calloc(tokenizer->n_tokens, sizeof *tokenizer->tokens);
    if (!tokenizer->tokens || !buffer_reserve(&tokenizer->bytes, (size_t)n_bytes))
        return error_memory(error, "the tokenizer's tokens");
    status = load_types(tokenizer, gguf, error);
    for (uint32_t i = 0; i < tokenizer->n_tokens && status == STATUS_OK; i++)
        status = add_token(tokenizer, i, tokens->strings[i], error);
    if (status == STATUS_OK && !index_tokens(tokenizer))
        status = error_memory(error, "the tokenizer's tokens");
    return status;
}

// An id by key; -1 where the key is missing.
static enum status load_id(const struct tokenizer *tokenizer, const struct gguf *gguf, const char *key, int32_t *id,
                           struct error *error)
{
    uint32_t value = 0;
    *id = -1;
    if (!gguf_find(gguf, key))
        return STATUS_OK;
    enum status status = gguf_get_u32(gguf, key, true, &value, error);
    if (status != STATUS_OK)
        return status;
    if (value >= tokenizer->n_tokens) {
        return error_set(error, STATUS_INVALID, "%s is %u, but there are only %u tokens", key, value,
                         tokenizer->n_tokens);
    }
    *id = (int32_t)value;
    return STATUS_OK;
}

static bool add_end(struct tokenizer *tokenizer, int32_t id)
{
    if (id < 0 || tokenizer_is_end(tokenizer, id))
        return true;
    int32_t *grown = realloc(tokenizer->ends, (tokenizer->n_ends + 1) * sizeof *grown);
    if (!grown)
        return false;
    tokenizer->ends = grown;
    tokenizer->ends[tokenizer->n_ends++] = id;
    return true;
}

// The id of a control or user-defined token by name, or -1.
static int32_t find_special(const struct tokenizer *tokenizer, const char *piece)
{
    int32_t id = tokenizer_find(tokenizer, piece, strlen(piece));
    if (id < 0)
        return -1;
    enum token_type type = tokenizer->tokens[id].type;
    return type == TOKEN_CONTROL || type == TOKEN_USER_DEFINED ? id : -1;
}

// Pieces by which models end a turn or a text, whatever the file's keys say. <|end_of_role|> is none of them: it ends
// the name of the one who speaks.
static bool find_ends(struct tokenizer *tokenizer)
{
    static const char *const names[] = {
        "<|im_end|>",
        "<|eot_id|>",
        "<|eom_id|>",
        "<|eot|>",
        "<|eom|>",
        "<end_of_turn>",
        "<turn|>",
        "<|end|>",
        "<|endoftext|>",
        "<|end_of_text|>",
        "</s>",
        "<eos>",
        "[EOS]",
        "<EOT>",
        "_<EOT>",
        "[EOT]",
        "<|return|>",
        "<|call|>",
        "<|calls|>",
        "<|flush|>",
        "<|END_OF_TURN_TOKEN|>",
        "<end_of_utterance>",
        "<\xef\xbd\234end\xe2\x96\x81of\xe2\x96\x81sentence\xef\xbd\x9c>", // \234: "\x9ce" would be one escape
    };
    // Where there is <|return|> or <|flush|>, <|end|> only ends one message of several in a turn.
    bool end_goes_on = find_special(tokenizer, "<|return|>") >= 0 || find_special(tokenizer, "<|flush|>") >= 0;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (end_goes_on && strcmp(names[i], "<|end|>") == 0)
            continue;
        if (!add_end(tokenizer, find_special(tokenizer, names[i])))
            return false;
    }
    return true;
}

static enum status load_ids(struct tokenizer *tokenizer, const struct gguf *gguf, struct error *error)
{
    static const char *const checked[] = {
        "tokenizer.ggml.seperator_token_id", "tokenizer.ggml.separator_token_id", "tokenizer.ggml.padding_token_id",
        "tokenizer.ggml.cls_token_id",       "tokenizer.ggml.mask_token_id",      "tokenizer.ggml.fim_pre_token_id",
        "tokenizer.ggml.fim_suf_token_id",   "tokenizer.ggml.fim_mid_token_id",   "tokenizer.ggml.fim_pad_token_id",
        "tokenizer.ggml.fim_rep_token_id",   "tokenizer.ggml.fim_sep_token_id",   "tokenizer.ggml.prefix_token_id",
        "tokenizer.ggml.suffix_token_id",    "tokenizer.ggml.middle_token_id",
    };
    int32_t eot, eom, other;
    enum status status = load_id(tokenizer, gguf, "tokenizer.ggml.bos_token_id", &tokenizer->bos, error);
    if (status == STATUS_OK)
        status = load_id(tokenizer, gguf, "tokenizer.ggml.eos_token_id", &tokenizer->eos, error);
    if (status == STATUS_OK)
        status = load_id(tokenizer, gguf, "tokenizer.ggml.unknown_token_id", &tokenizer->unknown, error);
    if (status == STATUS_OK)
        status = load_id(tokenizer, gguf, "tokenizer.ggml.eot_token_id", &eot, error);
    if (status == STATUS_OK)
        status = load_id(tokenizer, gguf, "tokenizer.ggml.eom_token_id", &eom, error);
    for (size_t i = 0; i < sizeof checked / sizeof *checked && status == STATUS_OK; i++)
        status = load_id(tokenizer, gguf, checked[i], &other, error);
    if (status != STATUS_OK)
        return status;
    if (tokenizer->kind == KIND_SENTENCE_PIECE) {
        tokenizer->bos = tokenizer->bos < 0 ? find_special(tokenizer, "<s>") : tokenizer->bos;
        tokenizer->eos = tokenizer->eos < 0 ? find_special(tokenizer, "</s>") : tokenizer->eos;
        for (uint32_t id = 0; id < tokenizer->n_tokens && tokenizer->unknown < 0; id++)
            tokenizer->unknown = tokenizer->tokens[id].type == TOKEN_UNKNOWN ? (int32_t)id : -1;
    }
    if (!add_end(tokenizer, tokenizer->eos) || !add_end(tokenizer, eot) || !add_end(tokenizer, eom) ||
        !find_ends(tokenizer))
        return error_memory(error, "the tokenizer");
    return STATUS_OK;
}

static enum status load_kind(struct tokenizer *tokenizer, const struct gguf *gguf, struct error *error)
{
    struct gguf_string model = {0};
    enum status status = gguf_get_string(gguf, "tokenizer.ggml.model", true, &model, error);
    if (status != STATUS_OK)
        return status;
    if (strcmp(model.text, "gpt2") == 0) {
        tokenizer->kind = KIND_BYTE_LEVEL;
    } else if (strcmp(model.text, "llama") == 0) {
        tokenizer->kind = KIND_SENTENCE_PIECE;
    } else {
        return error_set(error, STATUS_UNSUPPORTED,
                         "tokenizer.ggml.model is '%.100s': the tokenizers that mote knows are gpt2 and llama",
                         model.text);
    }
    return STATUS_OK;
}

static enum status load(struct tokenizer *tokenizer, const struct gguf *gguf, const char *pre_override,
                        struct error *error)
{
    enum status status = load_kind(tokenizer, gguf, error);
    if (status == STATUS_OK)
        status = load_tokens(tokenizer, gguf, error);
    if (status == STATUS_OK)
        status = load_ids(tokenizer, gguf, error);
    if (status == STATUS_OK && tokenizer->kind == KIND_BYTE_LEVEL)
        status = bpe_load(tokenizer, gguf, pre_override, error);
    else if (status == STATUS_OK)
        status = spm_load(tokenizer, gguf, error);
    if (status == STATUS_OK)
        status = gguf_get_bool(gguf, "tokenizer.ggml.add_bos_token", false, &tokenizer->adds_bos, error);
    if (status == STATUS_OK)
        status = gguf_get_bool(gguf, "tokenizer.ggml.add_eos_token", false, &tokenizer->adds_eos, error);
    tokenizer->adds_bos = tokenizer->adds_bos && tokenizer->bos >= 0;
    tokenizer->adds_eos = tokenizer->adds_eos && tokenizer->eos >= 0;
    return status;
}

enum status tokenizer_create(const struct gguf *gguf, const char *pre_override, struct tokenizer **tokenizer,
                             struct error *error)
{
    *tokenizer = calloc(1, sizeof **tokenizer);
    if (!*tokenizer)
        return error_memory(error, "the tokenizer");
    enum status status = load(*tokenizer, gguf, pre_override, error);
    if (status != STATUS_OK) {
        tokenizer_destroy(*tokenizer);
        *tokenizer = NULL;
    }
    return status;
}

void tokenizer_destroy(struct tokenizer *tokenizer)
{
    if (!tokenizer)
        return;
    buffer_free(&tokenizer->bytes);
    free(tokenizer->tokens);
    map_free(&tokenizer->index);
    map_free(&tokenizer->others);
    trie_free(&tokenizer->special);
    free(tokenizer->ends);
    pretokenizer_destroy(tokenizer->pretokenizer);
    free(tokenizer->merges);
    free(tokenizer->inner_pairs);
    free(tokenizer);
}
