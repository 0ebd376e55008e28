// Reading adapters: the keys adapter.*, and tensors NAME.lora_a and NAME.lora_b for a weight NAME of the model.
#include "model/adapter.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_TEXT = 160 };

static const char *const suffixes[] = {".lora_a", ".lora_b"};

static void describe(const char *name, const uint64_t *ne, char *text, size_t size)
{
    int length = snprintf(text, size, "'%s' [%llu, %llu", name, (unsigned long long)ne[0], (unsigned long long)ne[1]);
    if (length > 0 && (size_t)length < size)
        snprintf(text + length, size - (size_t)length, ne[2] == 1 ? "]" : ", %llu]", (unsigned long long)ne[2]);
}

// ---- keys ----

static bool string_is(const struct gguf *gguf, const char *key, const char *wanted)
{
    const struct gguf_value *value = gguf_find(gguf, key);
    return value != NULL && value->type == GGUF_STRING && strcmp(value->string.text, wanted) == 0;
}

static enum status read_keys(const struct gguf *file, float *alpha, struct error *error)
{
    struct gguf_string type = {.text = ""};
    if (!string_is(file, "general.type", "adapter"))
        return error_set(error, STATUS_INVALID,
                         "the file is not an adapter (general.type is not 'adapter'): --lora takes LoRA adapters in "
                         "GGUF");
    enum status status = gguf_get_string(file, "adapter.type", true, &type, error);
    if (status != STATUS_OK)
        return status;
    if (strcmp(type.text, "lora") != 0)
        return error_set(error, STATUS_UNSUPPORTED, "adapter.type is '%s': mote knows only lora", type.text);
    const struct gguf_value *tokens = gguf_find(file, "adapter.alora.invocation_tokens");
    if (tokens != NULL && !gguf_value_is_zero(tokens))
        return error_set(error, STATUS_UNSUPPORTED,
                         "adapter.alora.invocation_tokens asks for an adapter that some tokens switch on: mote knows "
                         "only adapters that are on for a whole session");
    return gguf_get_f32(file, "adapter.lora.alpha", true, alpha, error);
}

// ---- tensors ----

struct reading {
    struct adapters *adapters;
    const struct gguf *file, *model;
    uint32_t adapter;
    float alpha;
};

// The length of the weight's name in an adapter's tensor name, and which of the pair it is; false: neither.
static bool split_name(const char *name, size_t *length, int *which)
{
    size_t size = strlen(name), suffix = strlen(suffixes[0]);
    for (*which = 0; *which < 2; (*which)++) {
        if (size > suffix && strcmp(name + size - suffix, suffixes[*which]) == 0) {
            *length = size - suffix;
            return true;
        }
    }
    return false;
}

static const struct gguf_tensor *find_other(const struct gguf *file, const char *name, size_t length, int which)
{
    char other[MAX_TEXT];
    int size = snprintf(other, sizeof(other), "%.*s%s", (int)length, name, suffixes[!which]);
    return size > 0 && (size_t)size < sizeof(other) ? gguf_find_tensor(file, other) : NULL;
}

static bool pair_fits(const struct gguf_tensor *base, const struct gguf_tensor *a, const struct gguf_tensor *b,
                      bool flipped)
{
    if (a->ne[3] != 1 || b->ne[3] != 1 || base->ne[3] != 1 || a->ne[2] != base->ne[2] || b->ne[2] != base->ne[2])
        return false;
    if (flipped)
        return a->ne[0] == b->ne[0] && a->ne[1] == base->ne[1] && b->ne[1] == base->ne[0];
    return a->ne[0] == base->ne[0] && a->ne[1] == b->ne[0] && b->ne[1] == base->ne[1];
}

static struct lora_tensor from_file(const struct gguf_tensor *tensor)
{
    return (struct lora_tensor){.name = tensor->name,
                                .dtype = tensor->dtype,
                                .ne = {(size_t)tensor->ne[0], (size_t)tensor->ne[1], (size_t)tensor->ne[2]}};
}

static enum status misfit(const struct gguf_tensor *base, const struct gguf_tensor *a, const struct gguf_tensor *b,
                          struct error *error)
{
    char text_a[MAX_TEXT], text_b[MAX_TEXT], text_base[MAX_TEXT];
    describe(a->name, a->ne, text_a, sizeof(text_a));
    describe(b->name, b->ne, text_b, sizeof(text_b));
    describe(base->name, base->ne, text_base, sizeof(text_base));
    return error_set(error, STATUS_INVALID,
                     "tensors %s and %s do not fit the model's %s: the adapter was made for another model; give the "
                     "model that it was trained on",
                     text_a, text_b, text_base);
}

// Checks one tensor; a pair is added when its first tensor in the file comes.
static enum status read_tensor(const struct reading *reading, const struct gguf_tensor *tensor, struct error *error)
{
    size_t length;
    int which;
    if (!split_name(tensor->name, &length, &which))
        return error_set(error, STATUS_UNSUPPORTED,
                         "tensor '%s' is neither a .lora_a nor a .lora_b: mote knows only LoRA pairs", tensor->name);
    const struct gguf_tensor *other = find_other(reading->file, tensor->name, length, which);
    if (other == NULL)
        return error_set(error, STATUS_INVALID, "tensor '%s' has no '%.*s%s' beside it: the file is damaged",
                         tensor->name, (int)length, tensor->name, suffixes[!which]);
    if (other < tensor)
        return STATUS_OK; // the pair is known
    struct adapters *adapters = reading->adapters;
    const char *weight = arena_copy_text(&adapters->arena, tensor->name, length);
    if (weight == NULL)
        return error_memory(error, "the adapter");
    const struct gguf_tensor *base = gguf_find_tensor(reading->model, weight);
    if (base == NULL) {
        char text[MAX_TEXT];
        describe(tensor->name, tensor->ne, text, sizeof(text));
        return error_set(error, STATUS_INVALID,
                         "tensor %s is for a weight '%s', which the model does not have: the adapter was made for "
                         "another model; give the model that it was trained on",
                         text, weight);
    }
    const struct gguf_tensor *a = which == 0 ? tensor : other, *b = which == 0 ? other : tensor;
    bool flipped = strcmp(weight, "token_embd.weight") == 0;
    if (!pair_fits(base, a, b, flipped))
        return misfit(base, a, b, error);
    adapters->pairs[adapters->n_pairs++] =
        (struct lora_pair){.adapter = reading->adapter,
                           .weight = weight,
                           .a = from_file(a),
                           .b = from_file(b),
                           .flipped = flipped,
                           .factor = reading->alpha == 0 ? 1 : reading->alpha / (float)b->ne[0]};
    return STATUS_OK;
}

static enum status read_tensors(const struct reading *reading, struct error *error)
{
    if (reading->file->n_tensors == 0)
        return error_set(error, STATUS_INVALID, "the adapter has no tensors");
    for (size_t i = 0; i < reading->file->n_tensors; i++) {
        enum status status = read_tensor(reading, &reading->file->tensors[i], error);
        if (status != STATUS_OK)
            return status;
    }
    return STATUS_OK;
}

// An adapter for another architecture: the first tensor that does not fit says more than the name does.
static enum status check_architecture(const struct gguf *file, const struct gguf *model, struct error *error)
{
    struct gguf_string theirs = {.text = ""}, ours = {.text = ""};
    enum status status = gguf_get_string(file, "general.architecture", true, &theirs, error);
    if (status == STATUS_OK)
        status = gguf_get_string(model, "general.architecture", true, &ours, error);
    if (status != STATUS_OK || strcmp(theirs.text, ours.text) == 0)
        return status;
    return error_set(error, STATUS_INVALID, "the adapter is for the architecture '%s', but the model is '%s'",
                     theirs.text, ours.text);
}

static enum status read_adapter(struct adapters *adapters, uint32_t adapter, const struct gguf *model,
                                struct error *error)
{
    struct reading reading = {
        .adapters = adapters, .file = adapters->files[adapter], .model = model, .adapter = adapter};
    enum status status = read_keys(reading.file, &reading.alpha, error);
    if (status == STATUS_OK)
        status = read_tensors(&reading, error);
    struct error architecture = {0};
    if ((status == STATUS_OK || status == STATUS_INVALID) &&
        check_architecture(reading.file, model, &architecture) != STATUS_OK) {
        if (status != STATUS_OK)
            return error_prefix(error, "%s; the first tensor that does not fit", architecture.message);
        status = architecture.status;
        if (error != NULL)
            *error = architecture;
    }
    return status;
}

static enum status open_all(const char *const *paths, size_t n, const struct gguf *model, struct adapters *adapters,
                            struct error *error)
{
    size_t n_tensors = 0;
    for (size_t i = 0; i < n; i++) {
        enum status status = gguf_open(paths[i], &adapters->files[i], error);
        if (status != STATUS_OK)
            return status;
        adapters->n++;
        n_tensors += adapters->files[i]->n_tensors;
    }
    adapters->pairs = arena_alloc_array(&adapters->arena, n_tensors + 1, sizeof(*adapters->pairs));
    if (adapters->pairs == NULL)
        return error_memory(error, "the adapters");
    for (size_t i = 0; i < n; i++) {
        enum status status = read_adapter(adapters, (uint32_t)i, model, error);
        if (status != STATUS_OK) {
            error_prefix(error, "%s", paths[i]);
            return status;
        }
    }
    return STATUS_OK;
}

enum status adapters_open(const char *const *paths, size_t n, const struct gguf *model, struct adapters *adapters,
                          struct error *error)
{
    memset(adapters, 0, sizeof(*adapters));
    if (n == 0)
        return STATUS_OK;
    arena_init(&adapters->arena, 0);
    adapters->files = calloc(n, sizeof(struct gguf *));
    enum status status = adapters->files == NULL ? error_memory(error, "the adapters") : STATUS_OK;
    if (status == STATUS_OK)
        status = open_all(paths, n, model, adapters, error);
    if (status != STATUS_OK)
        adapters_close(adapters);
    return status;
}

enum status adapters_check_used(const struct adapters *adapters, struct error *error)
{
    for (size_t i = 0; i < adapters->n_pairs; i++) {
        const struct lora_pair *pair = &adapters->pairs[i];
        if (!pair->used)
            return error_set(error, STATUS_UNSUPPORTED,
                             "%s: tensor '%s' is for a weight that is no product of the model, or not in the form of "
                             "the file: mote cannot apply it",
                             adapters->files[pair->adapter]->parts[0].path, pair->a.name);
    }
    return STATUS_OK;
}

void adapters_close(struct adapters *adapters)
{
    for (size_t i = 0; i < adapters->n; i++)
        gguf_close(adapters->files[i]);
    free(adapters->files);
    arena_free(&adapters->arena);
    memset(adapters, 0, sizeof(*adapters));
}
