// Text through the public interface: tokenizer, streaming decoder, chat template.
#include "engine/engine.h"

#include "text/template.h"

#include <stdlib.h>
#include <string.h>

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

// ---- templates ----

static enum status parse_input(const char *input, size_t size, json_t **object, struct error *error)
{
    json_error_t problem;
    *object = json_loadb(input, size, JSON_ALLOW_NUL, &problem);
    if (*object == NULL)
        return error_set(error, STATUS_INVALID, "the template's input is not JSON: line %d: %s", problem.line,
                         problem.text);
    if (!json_is_object(*object)) {
        json_decref(*object);
        *object = NULL;
        return error_set(error, STATUS_INVALID, "the template's input is not a JSON object of variables");
    }
    return STATUS_OK;
}

static void add_token(json_t *object, const char *name, const struct tokenizer *tokenizer, int32_t id)
{
    if (json_object_get(object, name) != NULL)
        return;
    struct gguf_string piece = id < 0 ? (struct gguf_string){.text = ""} : tokenizer_piece(tokenizer, id);
    json_object_set_new(object, name, json_stringn(piece.text, piece.size)); // dropped where it is not UTF-8
}

mote_status mote_template_render(mote_model *model, const char *source, size_t source_size, const char *input,
                                 size_t input_size, int64_t now, mote_rendered *rendered, mote_error *error)
{
    struct error *inner = inner_error(error);
    if (source == NULL) {
        source = model == NULL ? NULL : mote_model_string(model, "tokenizer.chat_template");
        if (source == NULL)
            return (mote_status)error_set(inner, STATUS_UNSUPPORTED,
                                          "the model has no chat template (tokenizer.chat_template)");
        source_size = gguf_find(model->gguf, "tokenizer.chat_template")->string.size;
    }
    json_t *object = NULL;
    enum status status = parse_input(input, input_size, &object, inner);
    if (status != STATUS_OK)
        return (mote_status)status;
    if (model != NULL && gguf_find(model->gguf, "tokenizer.ggml.model") != NULL) {
        const struct tokenizer *tokenizer;
        status = model_tokenizer(model, &tokenizer, inner);
        if (status == STATUS_OK) {
            add_token(object, "bos_token", tokenizer, tokenizer_bos(tokenizer));
            add_token(object, "eos_token", tokenizer, tokenizer_eos(tokenizer));
        }
    }
    struct rendered inner_rendered = {0};
    if (status == STATUS_OK)
        status = template_render(source, source_size, object, now, &template_limits_default, &inner_rendered, inner);
    json_decref(object);
    if (status == STATUS_OK && !buffer_reserve(&inner_rendered.text, 1))
        status = error_memory(inner, "the text");
    if (status != STATUS_OK) {
        rendered_free(&inner_rendered);
        return (mote_status)status;
    }
    *rendered = (mote_rendered){.text = inner_rendered.text.data,
                                .size = inner_rendered.text.size,
                                .trusted = (mote_range *)inner_rendered.trusted,
                                .n_trusted = inner_rendered.n_trusted};
    return MOTE_OK;
}

void mote_rendered_free(mote_rendered *rendered)
{
    free(rendered->text);
    free(rendered->trusted);
    *rendered = (mote_rendered){0};
}
