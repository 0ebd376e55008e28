// Any text through vocabularies that can hold it: what comes back is what went in, no control token comes from text
// alone, and the stream of whole characters says the same as the bytes. With the first byte 255, the vocabulary too
// comes from the input: it may be refused, and must not crash.
#include "../vocabulary.h"

#include <stdio.h>

static void require(bool holds, const char *what)
{
    if (holds)
        return;
    fprintf(stderr, "%s\n", what);
    abort();
}

// What the streaming decoder should have written for bytes.
static void replace_invalid(const char *bytes, size_t size, struct buffer *text)
{
    for (size_t i = 0; i < size;) {
        uint32_t code_point;
        size_t length = utf8_decode(bytes + i, size - i, &code_point);
        if (length) {
            buffer_append(text, bytes + i, length);
            i += length;
            continue;
        }
        size_t part = size - i < 3 ? size - i : 3;
        while (part > 1 && utf8_incomplete_tail(bytes + i, part) != part)
            part--;
        buffer_append(text, "\xef\xbf\xbd", 3);
        i += part;
    }
}

static void check_streaming(const struct tokenizer *tokenizer, const struct token_ids *ids, const struct buffer *bytes)
{
    struct detokenizer state;
    struct buffer streamed = {0}, expected = {0};
    detokenizer_init(&state, tokenizer, true);
    for (size_t i = 0; i < ids->count; i++) {
        require(detokenizer_add(&state, ids->ids[i], &streamed, NULL) == STATUS_OK, "an id does not stream");
        require(utf8_valid(streamed.data, streamed.size, NULL), "the stream holds half a character");
    }
    require(detokenizer_finish(&state, &streamed, NULL) == STATUS_OK, "the stream does not end");
    replace_invalid(bytes->data, bytes->size, &expected);
    require(streamed.size == expected.size &&
                (expected.size == 0 || memcmp(streamed.data, expected.data, expected.size) == 0),
            "the stream says something else than the bytes");
    buffer_free(&streamed);
    buffer_free(&expected);
}

static void check_ids(const struct tokenizer *tokenizer, const struct token_ids *ids, bool control_allowed)
{
    for (size_t i = 0; i < ids->count; i++) {
        require(ids->ids[i] >= 0 && (size_t)ids->ids[i] < tokenizer_n_tokens(tokenizer), "an id is out of range");
        require(control_allowed || tokenizer_type(tokenizer, ids->ids[i]) != TOKEN_CONTROL,
                "text gave a control token");
    }
}

// Marks count as spaces with SentencePiece.
static void marks_to_spaces(struct buffer *text)
{
    size_t to = 0;
    for (size_t i = 0; i < text->size; i++) {
        bool mark = text->size - i >= 3 && memcmp(text->data + i, "\xe2\x96\x81", 3) == 0;
        text->data[to++] = mark ? ' ' : text->data[i];
        i += mark ? 2 : 0;
    }
    text->size = to;
}

static void check_text(const struct tokenizer *tokenizer, const char *text, size_t size, bool special, bool lossless,
                       bool marks)
{
    struct token_ids ids = {0};
    struct text_range range = {size / 4, size};
    require(tokenizer_encode(tokenizer, text, size, &range, special && range.begin < size, &ids, NULL) == STATUS_OK,
            "a text is not encoded");
    // A file may name a control token as the unknown one, which SentencePiece then gives for what it lacks.
    check_ids(tokenizer, &ids, special || (marks && !lossless));
    struct buffer decoded = {0}, expected = {0};
    require(tokenizer_decode(tokenizer, ids.ids, ids.count, true, &decoded, NULL) == STATUS_OK, "ids do not decode");
    buffer_append(&expected, text, size);
    if (marks)
        marks_to_spaces(&expected);
    if (lossless) {
        require(decoded.size == expected.size &&
                    (decoded.size == 0 || memcmp(decoded.data, expected.data, decoded.size) == 0),
                "a text does not come back");
    }
    check_streaming(tokenizer, &ids, &decoded);
    buffer_free(&decoded);
    buffer_free(&expected);
    token_ids_free(&ids);
}

static struct tokenizer *create(const struct vocabulary *vocabulary, const char *pre)
{
    struct tokenizer *tokenizer;
    struct error error = {0};
    if (tokenizer_create(&vocabulary->gguf, pre, &tokenizer, &error) != STATUS_OK)
        require(false, error.message);
    return tokenizer;
}

static const char *const pre_names[] = {
    "default", "gpt-2",  "llama-bpe",      "chatglm-bpe", "qwen2",      "qwen35",       "gpt-4o", "tekken",
    "kimi-k2", "smollm", "deepseek-coder", "deepseek-v3", "seed-coder", "deepseek-llm", "falcon",
};
enum { N_PRE = sizeof pre_names / sizeof *pre_names };

// Made once: [N_PRE] of byte-level BPE, then SentencePiece.
static const struct tokenizer *known_tokenizer(size_t index)
{
    static struct tokenizer *made[N_PRE + 1];
    if (made[index])
        return made[index];
    static struct vocabulary vocabulary;
    if (index < N_PRE) {
        vocabulary_make_bpe(&vocabulary);
        vocabulary_finish(&vocabulary, "gpt2");
    } else {
        vocabulary_make_spm(&vocabulary);
        vocabulary_bool(&vocabulary, "tokenizer.ggml.add_space_prefix", false);
        vocabulary_finish(&vocabulary, "llama");
    }
    made[index] = create(&vocabulary, index < N_PRE ? pre_names[index] : NULL);
    vocabulary_free(&vocabulary);
    return made[index];
}

// A line of the input: what lies before the next newline.
static const char *next_line(const char **text, size_t *size, size_t *length)
{
    const char *line = *text;
    const char *end = *size ? memchr(line, '\n', *size) : NULL;
    *length = end ? (size_t)(end - line) : *size;
    *text += *length + (end != NULL);
    *size -= *length + (end != NULL);
    return line;
}

// A vocabulary of lines: options; tokens (a type, a score, the piece) and merges ('m', the line) up to an empty line;
// the rest is the text.
static void check_vocabulary(const char *text, size_t size)
{
    static struct vocabulary vocabulary;
    vocabulary_init(&vocabulary);
    size_t length;
    const char *options = next_line(&text, &size, &length);
    bool spm = length > 0 && (options[0] & 1);
    for (size_t i = 1; i < length && i < 8; i++) {
        static const char *const keys[] = {"bos_token_id", "eos_token_id", "unknown_token_id", "eot_token_id"};
        static const char *const flags[] = {"add_space_prefix", "remove_extra_whitespaces", "add_bos_token",
                                            "add_eos_token"};
        char key[64];
        snprintf(key, sizeof key, "tokenizer.ggml.%s", i < 4 ? keys[i] : flags[i - 4]);
        if (i < 4)
            vocabulary_u32(&vocabulary, key, (unsigned char)options[i] - (unsigned)'0');
        else
            vocabulary_bool(&vocabulary, key, options[i] & 1);
    }
    if (length > 0 && (options[0] & 2))
        spm ? vocabulary_byte_tokens(&vocabulary) : vocabulary_byte_letters(&vocabulary);
    for (const char *line; (line = next_line(&text, &size, &length)), length > 0;) {
        if (line[0] == 'm' && vocabulary.n_merges < 1024)
            vocabulary.merges[vocabulary.n_merges++] = vocabulary_string(&vocabulary, line + 1, length - 1);
        else if (length > 1 && vocabulary.n_tokens < 1024)
            vocabulary_token_bytes(&vocabulary, line + 2, length - 2, line[0] - '0', (float)(line[1] - 'm'));
    }
    vocabulary_finish(&vocabulary, spm ? "llama" : "gpt2");
    struct tokenizer *tokenizer;
    struct error error = {0};
    enum status status = tokenizer_create(&vocabulary.gguf, size ? "llama-bpe" : NULL, &tokenizer, &error);
    require((status == STATUS_OK) == (tokenizer != NULL), "a status and a tokenizer disagree");
    require((status == STATUS_OK) == (error.message[0] == '\0'), "a status and a message disagree");
    vocabulary_free(&vocabulary);
    if (tokenizer) {
        for (int32_t id = 0; (size_t)id < tokenizer_n_tokens(tokenizer); id++) {
            struct gguf_string piece = tokenizer_piece(tokenizer, id);
            int32_t found = tokenizer_find(tokenizer, piece.text, piece.size);
            require(found >= 0, "a token is not found by its piece");
            struct gguf_string same = tokenizer_piece(tokenizer, found);
            require(same.size == piece.size && memcmp(same.text, piece.text, piece.size) == 0, "another was found");
        }
        check_text(tokenizer, text, size, false, false, spm);
        check_text(tokenizer, text, size, true, false, spm);
    }
    tokenizer_destroy(tokenizer);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    const char *text = (const char *)data + 1;
    if (data[0] == 255) {
        check_vocabulary(text, size - 1);
        return 0;
    }
    bool special = data[0] & 1;
    size_t index = (data[0] >> 1) % (N_PRE + 1);
    check_text(known_tokenizer(index), text, size - 1, special, true, index == N_PRE);
    return 0;
}
