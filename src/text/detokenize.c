// From ids back to text: all at once, as bytes, or one id after another, as whole characters.
#include "text/tokenizer_internal.h"

#include "base/utf8.h"

#include <string.h>

static const char replacement[] = "\xef\xbf\xbd"; // U+FFFD

// The bytes that id writes. *started is set once anything was written: SentencePiece's space prefix goes before that.
static enum status token_bytes(const struct tokenizer *tokenizer, int32_t id, bool special, bool *started,
                               const char **bytes, size_t *size, struct error *error)
{
    if (id < 0 || (uint32_t)id >= tokenizer->n_tokens) {
        return error_set(error, STATUS_INVALID, "%d is no token: the vocabulary has %u", (int)id, tokenizer->n_tokens);
    }
    const struct token *token = &tokenizer->tokens[id];
    *bytes = tokenizer->bytes.data + token->text;
    *size = token->text_size;
    if (token->type == TOKEN_CONTROL || token->type == TOKEN_UNKNOWN) {
        *size = special ? *size : 0;
        return STATUS_OK;
    }
    bool drops_space = tokenizer->adds_space_prefix || tokenizer->removes_extra_spaces;
    if (!*started && drops_space && token->type != TOKEN_BYTE && *size > 0 && **bytes == ' ') {
        ++*bytes;
        --*size;
    }
    *started = *started || token->text_size > 0;
    return STATUS_OK;
}

enum status tokenizer_decode(const struct tokenizer *tokenizer, const int32_t *ids, size_t count, bool special,
                             struct buffer *text, struct error *error)
{
    bool started = false;
    for (size_t i = 0; i < count; i++) {
        const char *bytes = NULL;
        size_t size = 0;
        enum status status = token_bytes(tokenizer, ids[i], special, &started, &bytes, &size, error);
        if (status != STATUS_OK)
            return status;
        if (!buffer_append(text, bytes, size))
            return error_memory(error, "the text of tokens");
    }
    return STATUS_OK;
}

void detokenizer_init(struct detokenizer *state, const struct tokenizer *tokenizer, bool special)
{
    *state = (struct detokenizer){.tokenizer = tokenizer, .special = special};
}

// Appends the character that begins held[0..n), or U+FFFD for bytes that begin none. Returns how many bytes that took;
// 0 where more bytes may complete it.
static size_t write_character(const char *held, size_t n, struct buffer *text)
{
    uint32_t code_point;
    size_t length = utf8_decode(held, n, &code_point);
    if (length > 0) {
        buffer_append(text, held, length);
        return length;
    }
    for (size_t part = n < 3 ? n : 3; part > 0; part--) { // the longest beginning of a character
        if (utf8_incomplete_tail(held, part) != part)
            continue;
        if (part == n)
            return 0;
        length = part;
        break;
    }
    buffer_append(text, replacement, 3);
    return length ? length : 1;
}

enum status detokenizer_add(struct detokenizer *state, int32_t id, struct buffer *text, struct error *error)
{
    const char *bytes = NULL;
    size_t size = 0;
    enum status status = token_bytes(state->tokenizer, id, state->special, &state->started, &bytes, &size, error);
    if (status != STATUS_OK)
        return status;
    for (size_t i = 0; i < size;) {
        size_t whole = 0; // valid text needs no look at single characters
        if (state->n_held == 0 && utf8_valid(bytes + i, size - i, &whole))
            whole = size - i;
        if (state->n_held == 0 && whole > 0) {
            buffer_append(text, bytes + i, whole);
            i += whole;
            continue;
        }
        state->held[state->n_held++] = bytes[i++];
        size_t taken;
        while (state->n_held > 0 && (taken = write_character(state->held, state->n_held, text)) > 0) {
            state->n_held -= taken;
            memmove(state->held, state->held + taken, state->n_held);
        }
    }
    return text->failed ? error_memory(error, "the text of tokens") : STATUS_OK;
}

enum status detokenizer_finish(struct detokenizer *state, struct buffer *text, struct error *error)
{
    if (state->n_held > 0)
        buffer_append(text, replacement, 3);
    state->n_held = 0;
    return text->failed ? error_memory(error, "the text of tokens") : STATUS_OK;
}
