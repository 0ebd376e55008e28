// Descriptions of files, models and plans as JSON.
#include "engine/engine.h"

#include "base/buffer.h"
#include "base/utf8.h"

#include <jansson.h>
#include <math.h>
#include <string.h>

// A string that may hold anything: bytes that are not UTF-8 become U+FFFD.
static json_t *json_text(const char *text, size_t size)
{
    json_t *json = json_stringn(text, size);
    if (json != NULL)
        return json;
    struct buffer buffer = {0};
    for (size_t i = 0; i < size;) {
        uint32_t code_point;
        size_t length = utf8_decode(text + i, size - i, &code_point);
        if (length == 0)
            buffer_append_text(&buffer, "\xEF\xBF\xBD");
        else
            buffer_append(&buffer, text + i, length);
        i += length == 0 ? 1 : length;
    }
    json = buffer.failed ? NULL : json_stringn_nocheck(buffer.data, buffer.size);
    buffer_free(&buffer);
    return json;
}

// JSON has no NaN or infinity: they are written as text.
static json_t *json_number(double value)
{
    if (isfinite(value))
        return json_real(value);
    return json_string(isnan(value) ? "nan" : value > 0 ? "inf" : "-inf");
}

static double array_float(const struct gguf_value *array, uint64_t i)
{
    if (array->element == GGUF_F32) {
        float value;
        memcpy(&value, (const char *)array->array + i * sizeof(value), sizeof(value));
        return (double)value;
    }
    double value;
    memcpy(&value, (const char *)array->array + i * sizeof(value), sizeof(value));
    return value;
}

static json_t *value_json(const struct gguf_value *value);

static json_t *element_json(const struct gguf_value *array, uint64_t i)
{
    switch (array->element) {
    case GGUF_STRING:
        return json_text(array->strings[i].text, array->strings[i].size);
    case GGUF_ARRAY:
        return value_json(&array->arrays[i]);
    case GGUF_F32:
    case GGUF_F64:
        return json_number(array_float(array, i));
    case GGUF_BOOL:
        return json_boolean(gguf_array_integer(array, i) != 0);
    default:
        return json_integer(gguf_array_integer(array, i));
    }
}

static json_t *value_json(const struct gguf_value *value)
{
    switch (value->type) {
    case GGUF_STRING:
        return json_text(value->string.text, value->string.size);
    case GGUF_BOOL:
        return json_boolean(value->u != 0);
    case GGUF_F32:
    case GGUF_F64:
        return json_number(value->f);
    case GGUF_I8:
    case GGUF_I16:
    case GGUF_I32:
    case GGUF_I64:
        return json_integer(value->i);
    case GGUF_ARRAY: {
        json_t *array = json_array();
        for (uint64_t i = 0; i < value->count; i++)
            json_array_append_new(array, element_json(value, i));
        return array;
    }
    default:
        return json_integer((json_int_t)value->u);
    }
}

static json_t *describe_metadata(const struct gguf *gguf)
{
    json_t *keys = json_array();
    for (size_t i = 0; i < gguf->n_values; i++) {
        const struct gguf_value *value = &gguf->values[i];
        json_t *key = json_object();
        json_object_set_new(key, "key", json_text(value->key.text, value->key.size));
        json_object_set_new(key, "type", json_string(gguf_type_name(value->type)));
        if (value->type == GGUF_ARRAY) {
            json_object_set_new(key, "element", json_string(gguf_type_name(value->element)));
            json_object_set_new(key, "count", json_integer((json_int_t)value->count));
        }
        json_object_set_new(key, "value", value_json(value));
        json_array_append_new(keys, key);
    }
    json_t *files = json_array();
    for (uint32_t i = 0; i < gguf->n_parts; i++)
        json_array_append_new(files, json_text(gguf->parts[i].path, strlen(gguf->parts[i].path)));
    return json_pack("{s:i, s:o, s:I, s:i, s:I, s:o}", "version", (int)gguf->version, "files", files, "size",
                     (json_int_t)gguf->size, "alignment", (int)gguf->alignment, "n_tensors",
                     (json_int_t)gguf->n_tensors, "keys", keys);
}

static json_t *describe_tensors(const struct gguf *gguf)
{
    json_t *list = json_array();
    for (size_t i = 0; i < gguf->n_tensors; i++) {
        const struct gguf_tensor *tensor = &gguf->tensors[i];
        json_t *shape = json_array();
        for (uint32_t d = 0; d < tensor->n_dims; d++)
            json_array_append_new(shape, json_integer((json_int_t)tensor->ne[d]));
        json_t *item =
            json_pack("{s:o, s:s, s:o, s:I, s:I, s:i}", "name", json_text(tensor->name, strlen(tensor->name)), "dtype",
                      dtype_get(tensor->dtype)->name, "shape", shape, "size", (json_int_t)tensor->size, "offset",
                      (json_int_t)tensor->offset, "part", (int)tensor->part);
        json_array_append_new(list, item);
    }
    return list;
}

static json_t *describe_hyperparameters(const struct hyperparameters *h)
{
    json_t *about = json_pack("{s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:f, s:i}", "n_layer",
                              (int)h->n_layer, "n_embd", (int)h->n_embd, "n_ff", (int)h->n_ff, "n_head", (int)h->n_head,
                              "n_kv_head", (int)h->n_kv_head, "head_dim", (int)h->head_dim, "v_dim", (int)h->v_dim,
                              "n_rot", (int)h->n_rot, "n_vocab", (int)h->n_vocab, "n_context", (int)h->n_context,
                              "epsilon", (double)h->epsilon, "window", (int)h->window);
    if (h->n_expert > 0) {
        json_object_set_new(about, "n_expert", json_integer(h->n_expert));
        json_object_set_new(about, "n_expert_used", json_integer(h->n_expert_used));
    }
    return about;
}

static json_t *describe_tokenizer(struct mote_model *model)
{
    const struct tokenizer *tokenizer;
    struct error error = {0};
    if (model_tokenizer(model, &tokenizer, &error) != STATUS_OK)
        return json_pack("{s:o}", "error", json_text(error.message, strlen(error.message)));
    const char *kind = mote_model_string(model, "tokenizer.ggml.model");
    const char *pre = mote_model_string(model, "tokenizer.ggml.pre");
    return json_pack("{s:o, s:o, s:I, s:i, s:i, s:b, s:b, s:b}", "model", json_text(kind, strlen(kind)), "pre",
                     pre == NULL ? json_null() : json_text(pre, strlen(pre)), "n_tokens",
                     (json_int_t)tokenizer_n_tokens(tokenizer), "bos", tokenizer_bos(tokenizer), "eos",
                     tokenizer_eos(tokenizer), "adds_bos", tokenizer_adds_bos(tokenizer), "adds_eos",
                     tokenizer_adds_eos(tokenizer), "chat_template",
                     mote_model_string(model, "tokenizer.chat_template") != NULL);
}

static json_t *describe_model(struct mote_model *model)
{
    json_t *json = json_object();
    const char *architecture = mote_model_string(model, "general.architecture");
    const char *name = mote_model_string(model, "general.name");
    uint64_t parameters = 0;
    for (size_t i = 0; i < model->gguf->n_tensors; i++)
        parameters += model->gguf->tensors[i].n_elements;
    json_object_set_new(json, "architecture",
                        architecture == NULL ? json_null() : json_text(architecture, strlen(architecture)));
    json_object_set_new(json, "name", name == NULL ? json_null() : json_text(name, strlen(name)));
    json_object_set_new(json, "parameters", json_integer((json_int_t)parameters));
    struct hyperparameters h;
    struct error error = {0};
    if (model_read_hyperparameters(model->gguf, &h, &error) == STATUS_OK)
        json_object_set_new(json, "hyperparameters", describe_hyperparameters(&h));
    else
        json_object_set_new(json, "error", json_text(error.message, strlen(error.message)));
    json_object_set_new(json, "tokenizer", describe_tokenizer(model));
    return json;
}

// Of a mesh; NULL: it is none. The KV cache of each device is as many pages as the engine would have.
static json_t *describe_mesh(const struct engine_draft *draft)
{
    struct buffer text = {0};
    json_t *mesh = NULL, *device;
    size_t i;
    const struct device_ops *ops = draft->device->ops;
    if (ops->describe_mesh != NULL && ops->describe_mesh(draft->plan, &text))
        mesh = json_loadb(text.data, text.size, 0, NULL);
    buffer_free(&text);
    json_array_foreach(json_object_get(mesh, "devices"), i, device)
    {
        json_t *memory = json_object_get(device, "memory"), *bytes;
        json_int_t kv = 0;
        size_t kind;
        json_array_foreach(json_object_get(memory, "kv_pages"), kind, bytes) kv +=
            json_integer_value(bytes) * (json_int_t)draft->n_pages[kind];
        if (memory != NULL)
            json_object_set_new(memory, "kv", json_integer(kv));
    }
    return mesh;
}

static enum status describe_plan(struct mote_model *model, const mote_engine_params *params, json_t **json,
                                 struct error *error)
{
    struct engine_settings settings;
    struct engine_draft draft;
    enum status status = engine_settle(model, params, &settings, error);
    if (status == STATUS_OK)
        status = engine_draft_create(model, &settings, &draft, error);
    if (status != STATUS_OK)
        return status;
    struct buffer text = {0};
    json_t *steps = NULL;
    if (draft.device->ops->describe(draft.plan, &text))
        steps = json_loadb(text.data, text.size, 0, NULL);
    json_t *mesh = describe_mesh(&draft);
    const mote_memory *m = &draft.memory;
    *json = json_pack("{s:o, s:{s:I, s:I, s:I, s:I, s:I, s:I, s:I}, s:{s:I, s:I, s:I, s:I}}", "steps", steps, "memory",
                      "weights", (json_int_t)m->weights, "kv", (json_int_t)m->kv, "work", (json_int_t)m->work, "logits",
                      (json_int_t)m->logits, "total", (json_int_t)m->total, "available", (json_int_t)m->available,
                      "n_context_fits", (json_int_t)m->n_context_fits, "settings", "n_context",
                      (json_int_t)settings.n_context, "n_batch", (json_int_t)settings.n_batch, "n_threads",
                      (json_int_t)settings.n_threads, "n_sessions", (json_int_t)settings.n_sessions);
    if (mesh != NULL)
        json_object_set_new(*json, "mesh", mesh);
    buffer_free(&text);
    engine_draft_free(&draft);
    return STATUS_OK;
}

mote_status mote_model_describe(mote_model *model, mote_description what, const mote_engine_params *params, char **text,
                                mote_error *error)
{
    json_t *json = NULL;
    enum status status = STATUS_OK;
    switch (what) {
    case MOTE_METADATA:
        json = describe_metadata(model->gguf);
        break;
    case MOTE_TENSORS:
        json = describe_tensors(model->gguf);
        break;
    case MOTE_MODEL:
        json = describe_model(model);
        break;
    case MOTE_PLAN:
        status = describe_plan(model, params, &json, inner_error(error));
        break;
    }
    if (status != STATUS_OK)
        return (mote_status)status;
    *text = json == NULL ? NULL : json_dumps(json, JSON_COMPACT);
    json_decref(json);
    return *text == NULL ? (mote_status)error_memory(inner_error(error), "the description") : MOTE_OK;
}
