#include "chat.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

bool chat_has_template(const mote_model *model)
{
    return mote_model_string(model, "tokenizer.chat_template") != NULL;
}

// nulls: tools and documents are there and null, as transformers has it; the few templates that iterate over them
// without asking want them absent.
static mote_status render(mote_model *model, const struct text *prompt, bool nulls, mote_rendered *rendered,
                          mote_error *error)
{
    json_t *input = json_pack("{s:[{s:s, s:o}], s:b}", "messages", "role", "user", "content",
                              json_stringn(prompt->data, prompt->size), "add_generation_prompt", 1);
    if (input && nulls) {
        json_object_set_new(input, "tools", json_null());
        json_object_set_new(input, "documents", json_null());
    }
    char *text = input ? json_dumps(input, JSON_COMPACT) : NULL;
    json_decref(input);
    if (!text) {
        return set_error(error, MOTE_MEMORY, "out of memory");
    }
    mote_status status = mote_template_render(model, NULL, 0, text, strlen(text), (int64_t)time(NULL), rendered, error);
    free(text);
    return status;
}

mote_status chat_tokenize(mote_model *model, const struct text *prompt, struct ids *ids, mote_error *error)
{
    mote_rendered rendered = {0};
    mote_error second;
    *ids = (struct ids){0};
    mote_status status = render(model, prompt, true, &rendered, error);
    if (status == MOTE_INVALID && render(model, prompt, false, &rendered, &second) == MOTE_OK) {
        status = MOTE_OK;
    }
    if (status != MOTE_OK) {
        char message[sizeof error->message];
        memcpy(message, error->message, sizeof message);
        return set_error(error, status, "the model's chat template: %.900s (--raw goes without it)", message);
    }
    status = ids_tokenize_ranges(model, rendered.text, rendered.size, rendered.trusted, rendered.n_trusted, ids, error);
    mote_rendered_free(&rendered);
    return status == MOTE_OK ? ids_add_bos(model, ids, error) : status;
}

mote_status raw_tokenize(mote_model *model, const struct text *prompt, bool special, struct ids *ids, mote_error *error)
{
    mote_status status = ids_tokenize(model, prompt->data, prompt->size, special, ids, error);
    return status == MOTE_OK ? ids_add_bos(model, ids, error) : status;
}
