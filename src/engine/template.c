// Chat templates through the public interface.
#include "engine/engine.h"

#include "text/template.h"

#include <stdlib.h>

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
