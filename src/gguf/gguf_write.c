// Writing GGUF (version 3). Keys are encoded as they come, tensors are collected; the header goes out with the first
// data, since offsets depend on all of it. What the reader would refuse is refused here.
#include "gguf/gguf.h"

#include "gguf/parse.h"

#include "base/checked.h"
#include "base/utf8.h"

#include <stdlib.h>
#include <string.h>

struct gguf_writer {
    struct file_writer file;
    struct arena arena; // names of keys and tensors
    struct map keys;
    struct map names;
    struct buffer values; // key-value pairs, encoded
    uint64_t n_values;
    struct gguf_tensor *tensors; // offset: from the beginning of the data
    size_t n_tensors;
    size_t capacity;
    uint32_t alignment;
    bool header_written;
    size_t current; // the tensor that takes the next byte
    uint64_t done;  // bytes of it that came
};

static void free_writer(struct gguf_writer *writer)
{
    file_writer_abort(&writer->file);
    arena_free(&writer->arena);
    map_free(&writer->keys);
    map_free(&writer->names);
    buffer_free(&writer->values);
    free(writer->tensors);
    free(writer);
}

enum status gguf_writer_create(const char *path, struct gguf_writer **result, struct error *error)
{
    *result = NULL;
    struct gguf_writer *writer = calloc(1, sizeof *writer);
    if (!writer)
        return error_memory(error, "writing a GGUF file");
    writer->alignment = GGUF_DEFAULT_ALIGNMENT;
    enum status status = file_writer_open(&writer->file, path, error);
    if (status != STATUS_OK) {
        free_writer(writer);
        return status;
    }
    *result = writer;
    return STATUS_OK;
}

// Copies a name, checks it, and enters it in a map of names that are taken.
static enum status take_name(struct gguf_writer *writer, struct map *map, const char *what, const char *text,
                             size_t size, size_t longest, char **copy, struct error *error)
{
    if (writer->header_written)
        return error_set(error, STATUS_INVALID, "%s '%s' comes after the first data", what, text);
    if (size == 0 || size > longest)
        return error_set(error, STATUS_INVALID, "a %s has %zu bytes: 1 to %zu are allowed", what, size, longest);
    if (!utf8_valid(text, size, NULL) || memchr(text, 0, size))
        return error_set(error, STATUS_INVALID, "the %s '%s' is not valid UTF-8 (or has a NUL in it)", what, text);
    *copy = arena_copy_text(&writer->arena, text, size);
    bool added;
    if (!*copy || !map_add(map, *copy, size, 0, &added, NULL))
        return error_memory(error, "writing a GGUF file");
    if (!added)
        return error_set(error, STATUS_INVALID, "the %s '%s' was added twice", what, text);
    return STATUS_OK;
}

static void append_u32(struct buffer *buffer, uint32_t value)
{
    buffer_append(buffer, &value, sizeof value);
}

static void append_u64(struct buffer *buffer, uint64_t value)
{
    buffer_append(buffer, &value, sizeof value);
}

static void append_string(struct buffer *buffer, const char *text, size_t size)
{
    append_u64(buffer, size);
    buffer_append(buffer, text, size);
}

static bool append_array(struct buffer *buffer, const struct gguf_value *value, int depth)
{
    append_u32(buffer, value->element);
    append_u64(buffer, value->count);
    size_t size = gguf_type_size(value->element);
    if (size)
        return buffer_append(buffer, value->array, (size_t)value->count * size);
    for (uint64_t i = 0; i < value->count; i++) {
        if (value->element == GGUF_STRING)
            append_string(buffer, value->strings[i].text, value->strings[i].size);
        else if (depth == GGUF_DEEPEST_ARRAY || !append_array(buffer, &value->arrays[i], depth + 1))
            return false;
    }
    return !buffer->failed;
}

// The value without its type. False where arrays are nested too deep or memory ran out.
static bool append_value(struct buffer *buffer, const struct gguf_value *value)
{
    float f32 = (float)value->f;
    switch (value->type) {
    case GGUF_STRING:
        append_string(buffer, value->string.text, value->string.size);
        break;
    case GGUF_ARRAY:
        return append_array(buffer, value, 1);
    case GGUF_F32:
        buffer_append(buffer, &f32, sizeof f32);
        break;
    default: // integers: the low bytes, whatever the sign; F64: all
        buffer_append(buffer, &value->u, gguf_type_size(value->type));
        break;
    }
    return !buffer->failed;
}

enum status gguf_writer_add_value(struct gguf_writer *writer, const struct gguf_value *value, struct error *error)
{
    if (strcmp(value->key.text, "general.alignment") == 0) {
        if (value->type != GGUF_U32 || value->u < GGUF_LEAST_ALIGNMENT || (value->u & (value->u - 1)) != 0 ||
            value->u > UINT32_MAX)
            return error_set(error, STATUS_INVALID,
                             "key 'general.alignment' must be a u32, a power of two, at least %d",
                             GGUF_LEAST_ALIGNMENT);
        writer->alignment = (uint32_t)value->u;
    }
    char *key;
    enum status status =
        take_name(writer, &writer->keys, "key", value->key.text, value->key.size, GGUF_LONGEST_KEY, &key, error);
    if (status != STATUS_OK)
        return status;
    append_string(&writer->values, key, value->key.size);
    append_u32(&writer->values, value->type);
    bool appended = append_value(&writer->values, value);
    if (writer->values.failed)
        return error_memory(error, "writing a GGUF file");
    if (!appended)
        return error_set(error, STATUS_INVALID, "key '%s': arrays are nested more than %d deep", key,
                         GGUF_DEEPEST_ARRAY);
    writer->n_values++;
    return STATUS_OK;
}

static struct gguf_string string_of(const char *text)
{
    return (struct gguf_string){text, strlen(text)};
}

enum status gguf_writer_add_string(struct gguf_writer *writer, const char *key, const char *text, struct error *error)
{
    struct gguf_value value = {.key = string_of(key), .type = GGUF_STRING, .string = string_of(text)};
    return gguf_writer_add_value(writer, &value, error);
}

enum status gguf_writer_add_u32(struct gguf_writer *writer, const char *key, uint32_t number, struct error *error)
{
    struct gguf_value value = {.key = string_of(key), .type = GGUF_U32, .u = number};
    return gguf_writer_add_value(writer, &value, error);
}

enum status gguf_writer_add_f32(struct gguf_writer *writer, const char *key, float number, struct error *error)
{
    struct gguf_value value = {.key = string_of(key), .type = GGUF_F32, .f = (double)number};
    return gguf_writer_add_value(writer, &value, error);
}

enum status gguf_writer_add_bool(struct gguf_writer *writer, const char *key, bool truth, struct error *error)
{
    struct gguf_value value = {.key = string_of(key), .type = GGUF_BOOL, .u = truth};
    return gguf_writer_add_value(writer, &value, error);
}

enum status gguf_writer_add_tensor(struct gguf_writer *writer, const char *name, enum dtype dtype, uint32_t n_dims,
                                   const uint64_t *ne, struct error *error)
{
    struct gguf_tensor tensor = {.dtype = dtype, .n_dims = n_dims, .ne = {1, 1, 1, 1}, .n_elements = 1};
    const struct dtype_desc *desc = dtype_find(dtype);
    if (!desc)
        return error_set(error, STATUS_INVALID, "tensor '%s' has no valid type (%u)", name, (unsigned)dtype);
    if (n_dims < 1 || n_dims > GGUF_MOST_DIMS)
        return error_set(error, STATUS_INVALID, "tensor '%s' has %u dimensions: 1 to %d are allowed", name, n_dims,
                         GGUF_MOST_DIMS);
    bool fits = true;
    for (uint32_t i = 0; i < n_dims; i++) {
        tensor.ne[i] = ne[i];
        fits = fits && ne[i] >= 1 && checked_mul(tensor.n_elements, ne[i], &tensor.n_elements);
    }
    fits = fits && tensor.n_elements <= INT64_MAX && tensor.ne[0] % desc->block == 0 &&
           checked_mul(tensor.n_elements / desc->block, desc->bytes, &tensor.size);
    if (!fits)
        return error_set(error, STATUS_INVALID,
                         "tensor '%s' has a dimension of 0, too many elements, or rows that are no multiple of its "
                         "block (%u)",
                         name, desc->block);
    char *copy;
    enum status status =
        take_name(writer, &writer->names, "tensor name", name, strlen(name), GGUF_LONGEST_TENSOR_NAME, &copy, error);
    if (status != STATUS_OK)
        return status;
    tensor.name = copy;
    void *tensors = writer->tensors;
    if (!array_grow(&tensors, &writer->capacity, writer->n_tensors + 1, sizeof tensor))
        return error_memory(error, "writing a GGUF file");
    writer->tensors = tensors;
    writer->tensors[writer->n_tensors++] = tensor;
    return STATUS_OK;
}

// Zeros up to a multiple of the alignment; header and data both begin at one, so the file's offset counts.
static enum status write_padding(struct gguf_writer *writer, struct error *error)
{
    static const unsigned char zeros[4096];
    uint64_t padding = -writer->file.offset & (writer->alignment - 1);
    while (padding) {
        size_t piece = padding < sizeof zeros ? (size_t)padding : sizeof zeros;
        enum status status = file_writer_write(&writer->file, zeros, piece, error);
        if (status != STATUS_OK)
            return status;
        padding -= piece;
    }
    return STATUS_OK;
}

static enum status write_header(struct gguf_writer *writer, struct error *error)
{
    struct buffer header = {0};
    buffer_append(&header, "GGUF", 4);
    append_u32(&header, 3);
    append_u64(&header, writer->n_tensors);
    append_u64(&header, writer->n_values);
    buffer_append(&header, writer->values.data, writer->values.size);
    uint64_t offset = 0;
    bool fits = true;
    for (size_t i = 0; i < writer->n_tensors; i++) {
        const struct gguf_tensor *tensor = &writer->tensors[i];
        append_string(&header, tensor->name, strlen(tensor->name));
        append_u32(&header, tensor->n_dims);
        buffer_append(&header, tensor->ne, tensor->n_dims * sizeof tensor->ne[0]);
        append_u32(&header, tensor->dtype);
        append_u64(&header, offset);
        fits = fits && checked_add(offset, tensor->size, &offset) && offset <= INT64_MAX;
        offset = (offset + writer->alignment - 1) & ~(uint64_t)(writer->alignment - 1);
    }
    enum status status = header.failed ? error_memory(error, "writing a GGUF file")
                         : fits        ? file_writer_write(&writer->file, header.data, header.size, error)
                                : error_set(error, STATUS_INVALID, "the tensors together are too large for a file");
    buffer_free(&header);
    if (status == STATUS_OK)
        status = write_padding(writer, error);
    writer->header_written = status == STATUS_OK;
    return status;
}

enum status gguf_writer_write(struct gguf_writer *writer, const void *bytes, size_t size, struct error *error)
{
    enum status status = writer->header_written ? STATUS_OK : write_header(writer, error);
    const unsigned char *rest = bytes;
    while (status == STATUS_OK && size) {
        if (writer->current == writer->n_tensors)
            return error_set(error, STATUS_INVALID, "more data was written than the tensors take");
        const struct gguf_tensor *tensor = &writer->tensors[writer->current];
        uint64_t missing = tensor->size - writer->done;
        size_t piece = missing < size ? (size_t)missing : size;
        status = file_writer_write(&writer->file, rest, piece, error);
        rest += piece;
        size -= piece;
        writer->done += piece;
        if (status == STATUS_OK && writer->done == tensor->size) {
            writer->current++;
            writer->done = 0;
            status = write_padding(writer, error);
        }
    }
    return status;
}

enum status gguf_writer_finish(struct gguf_writer *writer, struct error *error)
{
    enum status status = writer->header_written ? STATUS_OK : write_header(writer, error);
    if (status == STATUS_OK && writer->current < writer->n_tensors) {
        const struct gguf_tensor *tensor = &writer->tensors[writer->current];
        status = error_set(error, STATUS_INVALID, "tensor '%s' got %llu of its %llu bytes", tensor->name,
                           (unsigned long long)writer->done, (unsigned long long)tensor->size);
    }
    if (status == STATUS_OK)
        status = file_writer_commit(&writer->file, error);
    free_writer(writer);
    return status;
}

void gguf_writer_abort(struct gguf_writer *writer)
{
    if (writer)
        free_writer(writer);
}
