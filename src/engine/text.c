// Text through the public interface: tokenizer and streaming decoder.
#include "engine/engine.h"

#include <stdlib.h>

_Static_assert(sizeof(mote_range) == sizeof(struct text_range), "public and inner ranges are the same");

mote_status mote_tokenize(mote_model *model, const char *text, size_t size, const mote_range *special, size_t n_special,
                          int32_t **ids, size_t *n_ids, mote_error *error)
{
    const struct tokenizer *tokenizer;
    enum status status = model_tokenizer(model, &tokenizer, inner_error(error));
    if (status != STATUS_OK)
        return (mote_status)status;
    struct token_ids list = {0};
    status = tokenizer_encode(tokenizer, text, size, (const struct text_range *)special, n_special, &list,
                              inner_error(error));
    if (status != STATUS_OK) {
        token_ids_free(&list);
        return (mote_status)status;
    }
    *ids = list.ids;
    *n_ids = list.count;
    return MOTE_OK;
}

mote_status mote_detokenize(mote_model *model, const int32_t *ids, size_t n_ids, bool special, char **text,
                            size_t *size, mote_error *error)
{
    const struct tokenizer *tokenizer;
    enum status status = model_tokenizer(model, &tokenizer, inner_error(error));
    struct buffer buffer = {0};
    if (status == STATUS_OK)
        status = tokenizer_decode(tokenizer, ids, n_ids, special, &buffer, inner_error(error));
    if (status == STATUS_OK && !buffer_reserve(&buffer, 1)) // so that an empty text is not NULL
        status = error_memory(inner_error(error), "the text");
    if (status != STATUS_OK) {
        buffer_free(&buffer);
        return (mote_status)status;
    }
    *text = buffer.data;
    *size = buffer.size;
    return MOTE_OK;
}

static enum status check_id(const struct tokenizer *tokenizer, int32_t id, struct error *error)
{
    if (id < 0 || (size_t)id >= tokenizer_n_tokens(tokenizer))
        return error_set(error, STATUS_INVALID, "token %d is not in the vocabulary of %zu", id,
                         tokenizer_n_tokens(tokenizer));
    return STATUS_OK;
}

mote_status mote_token_piece(mote_model *model, int32_t id, const char **piece, size_t *size, mote_error *error)
{
    const struct tokenizer *tokenizer;
    enum status status = model_tokenizer(model, &tokenizer, inner_error(error));
    if (status == STATUS_OK)
        status = check_id(tokenizer, id, inner_error(error));
    if (status != STATUS_OK)
        return (mote_status)status;
    struct gguf_string string = tokenizer_piece(tokenizer, id);
    *piece = string.text;
    *size = string.size;
    return MOTE_OK;
}

mote_status mote_token_specials(mote_model *model, int32_t *bos, int32_t *eos, bool *adds_bos, bool *adds_eos,
                                mote_error *error)
{
    const struct tokenizer *tokenizer;
    enum status status = model_tokenizer(model, &tokenizer, inner_error(error));
    if (status != STATUS_OK)
        return (mote_status)status;
    if (bos != NULL)
        *bos = tokenizer_bos(tokenizer);
    if (eos != NULL)
        *eos = tokenizer_eos(tokenizer);
    if (adds_bos != NULL)
        *adds_bos = tokenizer_adds_bos(tokenizer);
    if (adds_eos != NULL)
        *adds_eos = tokenizer_adds_eos(tokenizer);
    return MOTE_OK;
}

bool mote_token_is_end(mote_model *model, int32_t id)
{
    const struct tokenizer *tokenizer;
    return model_tokenizer(model, &tokenizer, NULL) == STATUS_OK && check_id(tokenizer, id, NULL) == STATUS_OK &&
           tokenizer_is_end(tokenizer, id);
}

bool mote_token_is_control(mote_model *model, int32_t id)
{
    const struct tokenizer *tokenizer;
    return model_tokenizer(model, &tokenizer, NULL) == STATUS_OK && check_id(tokenizer, id, NULL) == STATUS_OK &&
           tokenizer_type(tokenizer, id) == TOKEN_CONTROL;
}

// ---- streaming ----

struct mote_decoder {
    struct detokenizer state;
    struct buffer text;
};

mote_status mote_decoder_create(mote_model *model, bool special, mote_decoder **result, mote_error *error)
{
    const struct tokenizer *tokenizer;
    enum status status = model_tokenizer(model, &tokenizer, inner_error(error));
    if (status != STATUS_OK)
        return (mote_status)status;
    struct mote_decoder *decoder = calloc(1, sizeof(*decoder));
    if (decoder == NULL)
        return (mote_status)error_memory(inner_error(error), "the decoder");
    detokenizer_init(&decoder->state, tokenizer, special);
    *result = decoder;
    return MOTE_OK;
}

void mote_decoder_destroy(mote_decoder *decoder)
{
    if (decoder == NULL)
        return;
    buffer_free(&decoder->text);
    free(decoder);
}

static mote_status give_text(struct mote_decoder *decoder, enum status status, const char **text, size_t *size)
{
    *text = decoder->text.size == 0 ? "" : decoder->text.data;
    *size = decoder->text.size;
    return (mote_status)status;
}

mote_status mote_decoder_add(mote_decoder *decoder, int32_t id, const char **text, size_t *size, mote_error *error)
{
    decoder->text.size = 0;
    enum status status = detokenizer_add(&decoder->state, id, &decoder->text, inner_error(error));
    return give_text(decoder, status, text, size);
}

mote_status mote_decoder_finish(mote_decoder *decoder, const char **text, size_t *size, mote_error *error)
{
    decoder->text.size = 0;
    enum status status = detokenizer_finish(&decoder->state, &decoder->text, inner_error(error));
    return give_text(decoder, status, text, size);
}
