// See random_adapter.h.
#include "random_adapter.h"

#include "gguf/gguf.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void must(enum status status, const struct error *error)
{
    if (status != STATUS_OK)
        fail_msg("%s", error->message);
}

static uint64_t random_bits(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

// Older files' attn_kv_b has another form in the graph: mote refuses an adapter for it.
static bool has_pair(const struct gguf_tensor *tensor)
{
    size_t size = strlen(tensor->name);
    bool is_weight = size > 7 && strcmp(tensor->name + size - 7, ".weight") == 0;
    return is_weight && (tensor->n_dims == 2 || tensor->n_dims == 3) && strstr(tensor->name, "attn_kv_b") == NULL;
}

struct matrix { // of a pair, as in its file
    enum dtype dtype;
    uint64_t ne[3];
    size_t bytes, n;
    uint8_t *data;
    float *values;
};

static void matrix_make(struct matrix *matrix, enum dtype dtype, uint64_t ne0, uint64_t ne1, uint64_t ne2,
                        uint64_t *state)
{
    if (ne0 % dtype_get(dtype)->block != 0)
        dtype = DTYPE_F16;
    const struct dtype_desc *desc = dtype_get(dtype);
    *matrix = (struct matrix){.dtype = dtype, .ne = {ne0, ne1, ne2}, .n = (size_t)(ne0 * ne1 * ne2)};
    matrix->bytes = matrix->n / desc->block * desc->bytes;
    matrix->data = malloc(matrix->bytes);
    matrix->values = malloc(matrix->n * sizeof(float));
    assert_true(matrix->data != NULL && matrix->values != NULL);
    if (dtype == DTYPE_F32) {
        for (size_t i = 0; i < matrix->n; i++) {
            float value = (float)((double)(int64_t)random_bits(state) * 0x1p-63 * 0.3);
            memcpy(matrix->data + i * sizeof(value), &value, sizeof(value));
        }
    } else if (dtype == DTYPE_F16) { // exponents of 2^-8 … 2^-1
        for (size_t i = 0; i < matrix->n; i++) {
            uint64_t bits = random_bits(state);
            uint16_t half = (uint16_t)((bits & 0x83ff) | (7 + (bits >> 16) % 7) << 10);
            memcpy(matrix->data + i * sizeof(half), &half, sizeof(half));
        }
    } else { // Q8_0 blocks: d = 2^-9, 32 bytes
        for (size_t i = 0; i < matrix->bytes; i++)
            matrix->data[i] = i % 34 == 0 ? 0 : i % 34 == 1 ? 0x18 : (uint8_t)random_bits(state);
    }
    desc->decode(matrix->data, matrix->values, matrix->n);
}

static void matrix_free(struct matrix *matrix)
{
    free(matrix->data);
    free(matrix->values);
}

struct pair {
    struct matrix a, b;
    bool flipped;
};

static void pair_make(struct pair *pair, const struct gguf_tensor *base, const struct random_adapter *options,
                      uint64_t *state)
{
    uint64_t rank = options->rank;
    pair->flipped = strcmp(base->name, "token_embd.weight") == 0;
    if (pair->flipped) {
        matrix_make(&pair->a, options->dtype, rank, base->ne[1], 1, state);
        matrix_make(&pair->b, options->dtype, rank, base->ne[0], 1, state);
    } else {
        matrix_make(&pair->a, options->dtype, base->ne[0], rank, base->ne[2], state);
        matrix_make(&pair->b, options->dtype, rank, base->ne[1], base->ne[2], state);
    }
}

// The change of element (k, row) of a matrix of the base.
static double change(const struct pair *pair, size_t rank, size_t n_in, size_t n_out, size_t matrix, size_t row,
                     size_t k)
{
    double sum = 0;
    for (size_t r = 0; r < rank; r++) {
        double a = pair->flipped ? (double)pair->a.values[row * rank + r]
                                 : (double)pair->a.values[(matrix * rank + r) * n_in + k];
        double b = pair->flipped ? (double)pair->b.values[k * rank + r]
                                 : (double)pair->b.values[(matrix * n_out + row) * rank + r];
        sum += a * b;
    }
    return sum;
}

static void add_pair(struct gguf_writer *writer, const char *name, const struct pair *pair)
{
    struct error error = {0};
    char text[128];
    uint32_t n_dims = pair->a.ne[2] == 1 ? 2 : 3;
    snprintf(text, sizeof(text), "%s.lora_a", name);
    must(gguf_writer_add_tensor(writer, text, pair->a.dtype, n_dims, pair->a.ne, &error), &error);
    snprintf(text, sizeof(text), "%s.lora_b", name);
    must(gguf_writer_add_tensor(writer, text, pair->b.dtype, n_dims, pair->b.ne, &error), &error);
}

static void write_adapter(const struct gguf *base, const struct random_adapter *options, const struct pair *pairs,
                          const char *path)
{
    struct error error = {0};
    struct gguf_writer *writer = NULL;
    must(gguf_writer_create(path, &writer, &error), &error);
    must(gguf_writer_add_string(writer, "general.type", "adapter", &error), &error);
    must(gguf_writer_add_value(writer, gguf_find(base, "general.architecture"), &error), &error);
    must(gguf_writer_add_string(writer, "adapter.type", "lora", &error), &error);
    must(gguf_writer_add_f32(writer, "adapter.lora.alpha", options->alpha, &error), &error);
    for (size_t i = 0; i < base->n_tensors; i++) {
        if (has_pair(&base->tensors[i]))
            add_pair(writer, base->tensors[i].name, &pairs[i]);
    }
    for (size_t i = 0; i < base->n_tensors; i++) {
        if (!has_pair(&base->tensors[i]))
            continue;
        must(gguf_writer_write(writer, pairs[i].a.data, pairs[i].a.bytes, &error), &error);
        must(gguf_writer_write(writer, pairs[i].b.data, pairs[i].b.bytes, &error), &error);
    }
    must(gguf_writer_finish(writer, &error), &error);
}

// The scales of a tensor's experts, which are not for the adapter's terms: merged weights must be divided by them.
// NULL: it has none.
static float *read_expert_scales(const struct gguf *base, const struct gguf_tensor *tensor)
{
    struct error error = {0};
    char name[128];
    snprintf(name, sizeof(name), "%.*s.scale", (int)(strlen(tensor->name) - strlen(".weight")), tensor->name);
    const struct gguf_tensor *scale = gguf_find_tensor(base, name);
    if (scale == NULL)
        return NULL;
    float *scales = malloc((size_t)scale->size);
    assert_true(scales != NULL && scale->dtype == DTYPE_F32 && scale->n_elements == tensor->ne[2]);
    must(gguf_read_tensor(base, scale, 0, scales, (size_t)scale->size, &error), &error);
    return scales;
}

static void write_merged_tensor(struct gguf_writer *writer, const struct gguf *base, const struct gguf_tensor *tensor,
                                const struct random_adapter *options, const struct pair *pair)
{
    struct error error = {0};
    size_t n = (size_t)tensor->n_elements, n_in = (size_t)tensor->ne[0], n_out = (size_t)tensor->ne[1];
    uint8_t *data = malloc((size_t)tensor->size);
    float *values = malloc(n * sizeof(*values));
    assert_true(data != NULL && values != NULL);
    must(gguf_read_tensor(base, tensor, 0, data, (size_t)tensor->size, &error), &error);
    if (!has_pair(tensor)) {
        must(gguf_writer_write(writer, data, (size_t)tensor->size, &error), &error);
    } else {
        float *scales = read_expert_scales(base, tensor);
        double factor = options->scale * (options->alpha == 0 ? 1 : (double)options->alpha / options->rank);
        dtype_get(tensor->dtype)->decode(data, values, n);
        for (size_t i = 0; i < n; i++) {
            size_t matrix = i / (n_in * n_out), row = i / n_in % n_out;
            double scale = scales == NULL ? 1 : (double)scales[matrix];
            values[i] = (float)((double)values[i] +
                                factor / scale * change(pair, options->rank, n_in, n_out, matrix, row, i % n_in));
        }
        must(gguf_writer_write(writer, values, n * sizeof(*values), &error), &error);
        free(scales);
    }
    free(data);
    free(values);
}

static void write_merged(const struct gguf *base, const struct random_adapter *options, const struct pair *pairs,
                         const char *path)
{
    struct error error = {0};
    struct gguf_writer *writer = NULL;
    must(gguf_writer_create(path, &writer, &error), &error);
    for (size_t i = 0; i < base->n_values; i++)
        must(gguf_writer_add_value(writer, &base->values[i], &error), &error);
    for (size_t i = 0; i < base->n_tensors; i++) {
        const struct gguf_tensor *tensor = &base->tensors[i];
        must(gguf_writer_add_tensor(writer, tensor->name, has_pair(tensor) ? DTYPE_F32 : tensor->dtype, tensor->n_dims,
                                    tensor->ne, &error),
             &error);
    }
    for (size_t i = 0; i < base->n_tensors; i++)
        write_merged_tensor(writer, base, &base->tensors[i], options, &pairs[i]);
    must(gguf_writer_finish(writer, &error), &error);
}

void random_adapter_write(const char *model_path, const struct random_adapter *options, const char *adapter_path,
                          const char *merged_path)
{
    struct error error = {0};
    struct gguf *base = NULL;
    uint64_t state = options->seed;
    must(gguf_open(model_path, &base, &error), &error);
    struct pair *pairs = calloc(base->n_tensors, sizeof(*pairs));
    assert_non_null(pairs);
    for (size_t i = 0; i < base->n_tensors; i++) {
        if (has_pair(&base->tensors[i]))
            pair_make(&pairs[i], &base->tensors[i], options, &state);
    }
    write_adapter(base, options, pairs, adapter_path);
    if (merged_path != NULL)
        write_merged(base, options, pairs, merged_path);
    for (size_t i = 0; i < base->n_tensors; i++) {
        matrix_free(&pairs[i].a);
        matrix_free(&pairs[i].b);
    }
    free(pairs);
    gguf_close(base);
}
