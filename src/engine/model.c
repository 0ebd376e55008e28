// Models: opening files, and what can be asked of them before any weight is read.
#include "engine/engine.h"

#include "base/fpenv.h"

#include <stdlib.h>
#include <string.h>

_Static_assert(sizeof(mote_error) == sizeof(struct error), "the public error is the inner one");
_Static_assert(MOTE_OK == (int)STATUS_OK && MOTE_INVALID == (int)STATUS_INVALID && MOTE_IO == (int)STATUS_IO &&
                   MOTE_MEMORY == (int)STATUS_MEMORY && MOTE_UNSUPPORTED == (int)STATUS_UNSUPPORTED &&
                   MOTE_FULL == (int)STATUS_FULL && MOTE_CANCELLED == (int)STATUS_CANCELLED,
               "public and inner status codes are the same numbers");

const char *mote_version(void)
{
    return MOTE_VERSION;
}

int mote_numerics_version(void)
{
    return 3;
}

void mote_free(void *memory)
{
    free(memory);
}

void mote_model_params_default(mote_model_params *params)
{
    *params = (mote_model_params){.size = sizeof(*params)};
}

static void write_log(void *user, enum log_level level, const char *message)
{
    static const mote_log_level levels[] = {
        [LOG_DEBUG] = MOTE_DEBUG, [LOG_INFO] = MOTE_INFO, [LOG_WARNING] = MOTE_WARNING};
    const struct mote_model *model = user;
    model->log_function(model->log_user, levels[level], message);
}

mote_status mote_model_open(const char *path, const mote_model_params *params, mote_model **result, mote_error *error)
{
    struct mote_model *model = calloc(1, sizeof(*model));
    if (model == NULL)
        return (mote_status)error_memory(inner_error(error), "the model");
    if (pthread_mutex_init(&model->lock, NULL) != 0) {
        free(model);
        return (mote_status)error_memory(inner_error(error), "the model");
    }
    enum status status = STATUS_OK;
    if (params != NULL && params->log != NULL) {
        model->log = (struct log){.write = write_log, .user = model};
        model->log_function = params->log;
        model->log_user = params->log_user;
    }
    if (params != NULL && params->pre != NULL) {
        model->pre = strdup(params->pre);
        if (model->pre == NULL)
            status = error_memory(inner_error(error), "the model");
    }
    if (status == STATUS_OK)
        status = gguf_open(path, &model->gguf, inner_error(error));
    if (status != STATUS_OK) {
        mote_model_close(model);
        return (mote_status)status;
    }
    *result = model;
    return MOTE_OK;
}

void mote_model_close(mote_model *model)
{
    if (model == NULL)
        return;
    if (model->weights != NULL)
        model->weights_owner->free_weights(model->weights);
    tokenizer_destroy(model->tokenizer);
    gguf_close(model->gguf);
    pthread_mutex_destroy(&model->lock);
    free(model->pre);
    free(model);
}

// What a user should know about a vocabulary that was read.
static void warn_of_tokenizer(const struct mote_model *model)
{
    const char *kind = mote_model_string(model, "tokenizer.ggml.model");
    if (model->pre == NULL && kind != NULL && strcmp(kind, "gpt2") == 0 &&
        gguf_find(model->gguf, "tokenizer.ggml.pre") == NULL)
        log_message(
            &model->log, LOG_WARNING,
            "the file does not say how text is split before merging (tokenizer.ggml.pre): the default may not be "
            "the model's own way; --pre NAME sets it");
}

enum status model_tokenizer(struct mote_model *model, const struct tokenizer **tokenizer, struct error *error)
{
    enum status status = STATUS_OK;
    pthread_mutex_lock(&model->lock);
    if (model->tokenizer == NULL) {
        status = tokenizer_create(model->gguf, model->pre, &model->tokenizer, error);
        if (status == STATUS_OK)
            warn_of_tokenizer(model);
    }
    *tokenizer = model->tokenizer;
    pthread_mutex_unlock(&model->lock);
    return status;
}

size_t mote_model_n_vocab(const mote_model *model)
{
    const struct gguf_value *tokens = gguf_find(model->gguf, "tokenizer.ggml.tokens");
    return tokens != NULL && tokens->type == GGUF_ARRAY ? (size_t)tokens->count : 0;
}

size_t mote_model_n_context(const mote_model *model)
{
    struct hyperparameters h;
    return model_read_hyperparameters(model->gguf, &h, NULL) == STATUS_OK ? h.n_context : 0;
}

const char *mote_model_string(const mote_model *model, const char *key)
{
    const struct gguf_value *value = gguf_find(model->gguf, key);
    return value != NULL && value->type == GGUF_STRING ? value->string.text : NULL;
}

// ---- tensors ----

static enum status find_tensor(const mote_model *model, const char *name, const struct gguf_tensor **tensor,
                               struct error *error)
{
    *tensor = gguf_find_tensor(model->gguf, name);
    if (*tensor == NULL)
        return error_set(error, STATUS_INVALID, "the file has no tensor '%s' (mote inspect --tensors lists them)",
                         name);
    return STATUS_OK;
}

mote_status mote_tensor_find(const mote_model *model, const char *name, mote_tensor_info *info, mote_error *error)
{
    const struct gguf_tensor *tensor;
    enum status status = find_tensor(model, name, &tensor, inner_error(error));
    if (status != STATUS_OK)
        return (mote_status)status;
    *info = (mote_tensor_info){.n_dims = tensor->n_dims, .n_elements = tensor->n_elements, .bytes = tensor->size};
    strncpy(info->dtype, dtype_get(tensor->dtype)->name, sizeof(info->dtype) - 1);
    memcpy(info->shape, tensor->ne, sizeof(info->shape));
    return MOTE_OK;
}

mote_status mote_tensor_read_f32(const mote_model *model, const char *name, uint64_t first, uint64_t count,
                                 float *values, mote_error *error)
{
    struct error *inner = inner_error(error);
    const struct gguf_tensor *tensor;
    enum status status = find_tensor(model, name, &tensor, inner);
    if (status != STATUS_OK)
        return (mote_status)status;
    const struct dtype_desc *dtype = dtype_get(tensor->dtype);
    if (dtype->decode == NULL)
        return (mote_status)error_set(inner, STATUS_UNSUPPORTED, "tensor '%s' is %s, whose values mote cannot read yet",
                                      name, dtype->name);
    if (first > tensor->n_elements || count > tensor->n_elements - first || first % dtype->block != 0 ||
        count % dtype->block != 0)
        return (mote_status)error_set(
            inner, STATUS_INVALID,
            "tensor '%s' has %llu elements in blocks of %u: %llu from %llu on are not a range "
            "of them",
            name, (unsigned long long)tensor->n_elements, dtype->block, (unsigned long long)count,
            (unsigned long long)first);
    size_t size = (size_t)(count / dtype->block * dtype->bytes);
    void *blocks = malloc(size == 0 ? 1 : size);
    if (blocks == NULL)
        return (mote_status)error_memory(inner, "the tensor");
    status = gguf_read_tensor(model->gguf, tensor, first / dtype->block * dtype->bytes, blocks, size, inner);
    struct fpenv saved = fpenv_enter();
    if (status == STATUS_OK)
        dtype->decode(blocks, values, (size_t)count);
    fpenv_leave(saved);
    free(blocks);
    return (mote_status)status;
}

mote_status mote_tensor_read_i32(const mote_model *model, const char *name, int32_t *values, uint64_t count,
                                 mote_error *error)
{
    struct error *inner = inner_error(error);
    const struct gguf_tensor *tensor;
    enum status status = find_tensor(model, name, &tensor, inner);
    if (status != STATUS_OK)
        return (mote_status)status;
    if (tensor->dtype != DTYPE_I32 || tensor->n_elements != count)
        return (mote_status)error_set(inner, STATUS_INVALID, "tensor '%s' is %s with %llu elements, but i32 is needed",
                                      name, dtype_get(tensor->dtype)->name, (unsigned long long)tensor->n_elements);
    return (mote_status)gguf_read_tensor(model->gguf, tensor, 0, values, (size_t)(count * sizeof(*values)), inner);
}
