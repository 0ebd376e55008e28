// One GGUF file: magic, version, counts; metadata; the tensor table; and whether every tensor lies inside the file,
// aligned and apart from the others.
#include "gguf/parse.h"

#include "base/checked.h"
#include "base/utf8.h"

#include <stdlib.h>
#include <string.h>

enum {
    LEAST_VALUE = 8 + 1 + 4 + 1,          // bytes of a key-value pair: key length, key, type, value
    LEAST_TENSOR = 8 + 1 + 4 + 8 + 4 + 8, // of a tensor info: name length, name, dimension count, extent, type, offset
};

enum status gguf_allocate(struct arena *arena, uint64_t count, size_t size, void **pieces, struct error *error)
{
    uint64_t total;
    if (!checked_mul(count, size, &total) || (arena->limit && total > arena->limit - arena->used))
        return error_set(error, STATUS_INVALID,
                         "the metadata is too large: the file asks for %llu elements of %zu bytes, and mote reads at "
                         "most %zu bytes of metadata",
                         (unsigned long long)count, size, arena->limit);
    *pieces = arena_alloc(arena, (size_t)total);
    return *pieces ? STATUS_OK : error_memory(error, "the metadata");
}

static enum status check_version(uint32_t version, struct error *error)
{
    if (version == 2 || version == 3)
        return STATUS_OK;
    uint32_t swapped = __builtin_bswap32(version);
    if (swapped >= 1 && swapped <= 3)
        return error_set(error, STATUS_UNSUPPORTED,
                         "this is a big-endian GGUF file (version %u): fetch or convert the little-endian one",
                         swapped);
    if (version == 1)
        return error_set(error, STATUS_UNSUPPORTED,
                         "GGUF version 1 is not read (versions 2 and 3 are): fetch or convert the model again");
    return error_set(error, STATUS_UNSUPPORTED, "unknown GGUF version %u (versions 2 and 3 are read)", version);
}

static enum status check_magic(struct cursor *cursor, struct error *error)
{
    unsigned char head[512] = {0};
    size_t size = cursor->size < sizeof head ? (size_t)cursor->size : sizeof head;
    enum status status = cursor_read(cursor, head, size, "the header", error);
    if (status != STATUS_OK)
        return status;
    if (size < 4 || memcmp(head, "GGUF", 4) != 0)
        return gguf_identify(head, size, cursor->size, error);
    cursor->position = 4; // all of head is in the first window
    return STATUS_OK;
}

static enum status read_header(struct cursor *cursor, uint32_t *version, uint64_t *n_tensors, uint64_t *n_values,
                               struct error *error)
{
    enum status status = check_magic(cursor, error);
    if (status == STATUS_OK)
        status = cursor_read_u32(cursor, version, "the header", error);
    if (status == STATUS_OK)
        status = check_version(*version, error);
    if (status == STATUS_OK)
        status = cursor_read_u64(cursor, n_tensors, "the header", error);
    if (status == STATUS_OK)
        status = cursor_read_u64(cursor, n_values, "the header", error);
    if (status != STATUS_OK)
        return status;
    uint64_t remaining = cursor_remaining(cursor);
    if (*n_values > remaining / LEAST_VALUE || *n_values > GGUF_MOST_ENTRIES)
        return error_set(
            error, STATUS_INVALID,
            "the header announces %llu metadata keys, but the file ends %llu bytes behind it (and at most %d "
            "are allowed)",
            (unsigned long long)*n_values, (unsigned long long)remaining, GGUF_MOST_ENTRIES);
    if (*n_tensors > remaining / LEAST_TENSOR || *n_tensors > GGUF_MOST_ENTRIES)
        return error_set(
            error, STATUS_INVALID,
            "the header announces %llu tensors, but the file ends %llu bytes behind it (and at most %d are "
            "allowed)",
            (unsigned long long)*n_tensors, (unsigned long long)remaining, GGUF_MOST_ENTRIES);
    return STATUS_OK;
}

static enum status read_alignment(struct gguf_part *part, struct error *error)
{
    static const char key[] = "general.alignment";
    part->alignment = GGUF_DEFAULT_ALIGNMENT;
    uint32_t index;
    if (!map_find(&part->value_index, key, sizeof key - 1, &index))
        return STATUS_OK;
    const struct gguf_value *value = &part->values[index];
    if (value->type != GGUF_U32)
        return error_set(error, STATUS_INVALID, "key '%s' has type %s; it must be u32", key,
                         gguf_type_name(value->type));
    if (value->u < GGUF_LEAST_ALIGNMENT || (value->u & (value->u - 1)) != 0)
        return error_set(error, STATUS_INVALID, "key '%s' is %llu: it must be a power of two, at least %d", key,
                         (unsigned long long)value->u, GGUF_LEAST_ALIGNMENT);
    part->alignment = (uint32_t)value->u;
    return STATUS_OK;
}

static enum status read_tensor_name(struct cursor *cursor, struct arena *arena, struct gguf_tensor *tensor,
                                    struct error *error)
{
    uint64_t size;
    enum status status = cursor_read_u64(cursor, &size, "the tensor table", error);
    if (status != STATUS_OK)
        return status;
    if (size == 0)
        return error_set(error, STATUS_INVALID, "its name is empty");
    if (size > GGUF_LONGEST_TENSOR_NAME)
        return error_set(error, STATUS_INVALID, "its name is too long: %llu bytes, and GGUF allows at most %d",
                         (unsigned long long)size, GGUF_LONGEST_TENSOR_NAME);
    void *memory;
    status = gguf_allocate(arena, size + 1, 1, &memory, error);
    if (status != STATUS_OK)
        return status;
    char *name = memory;
    status = cursor_read(cursor, name, (size_t)size, "the tensor table", error);
    if (status != STATUS_OK)
        return status;
    if (!utf8_valid(name, (size_t)size, NULL) || memchr(name, 0, (size_t)size))
        return error_set(error, STATUS_INVALID, "its name '%s' is not valid UTF-8 (or has a NUL in it)", name);
    tensor->name = name;
    return STATUS_OK;
}

static enum status read_dims(struct cursor *cursor, struct gguf_tensor *tensor, struct error *error)
{
    enum status status = cursor_read_u32(cursor, &tensor->n_dims, "the tensor table", error);
    if (status != STATUS_OK)
        return status;
    if (tensor->n_dims < 1 || tensor->n_dims > GGUF_MOST_DIMS)
        return error_set(error, STATUS_INVALID, "it has %u dimensions: 1 to %d are allowed", tensor->n_dims,
                         GGUF_MOST_DIMS);
    tensor->n_elements = 1;
    for (uint32_t i = 0; i < GGUF_MOST_DIMS; i++) {
        tensor->ne[i] = 1;
        if (i >= tensor->n_dims)
            continue;
        status = cursor_read_u64(cursor, &tensor->ne[i], "the tensor table", error);
        if (status != STATUS_OK)
            return status;
        if (tensor->ne[i] == 0 || tensor->ne[i] > INT64_MAX)
            return error_set(error, STATUS_INVALID, "its dimension %u is %lld: it must be at least 1", i,
                             (long long)tensor->ne[i]);
        if (!checked_mul(tensor->n_elements, tensor->ne[i], &tensor->n_elements) || tensor->n_elements > INT64_MAX)
            return error_set(error, STATUS_INVALID,
                             "the product of its dimensions overflows (no file is of that size)");
    }
    return STATUS_OK;
}

// dtype and size, offset still relative to the data.
static enum status read_layout(struct cursor *cursor, struct gguf_tensor *tensor, struct error *error)
{
    uint32_t number;
    enum status status = cursor_read_u32(cursor, &number, "the tensor table", error);
    if (status == STATUS_OK)
        status = cursor_read_u64(cursor, &tensor->offset, "the tensor table", error);
    if (status != STATUS_OK)
        return status;
    const struct dtype_desc *desc = dtype_find(number);
    if (!desc)
        return error_set(error, STATUS_UNSUPPORTED, "its type is %u, which is unknown or was removed from GGUF",
                         number);
    if (tensor->ne[0] % desc->block != 0)
        return error_set(error, STATUS_INVALID, "its rows have %llu elements, which is no multiple of %s's block of %u",
                         (unsigned long long)tensor->ne[0], desc->name, desc->block);
    tensor->dtype = desc->dtype;
    if (!checked_mul(tensor->n_elements / desc->block, desc->bytes, &tensor->size))
        return error_set(error, STATUS_INVALID, "its size in bytes overflows (no file is of that size)");
    return STATUS_OK;
}

static enum status read_tensor(struct cursor *cursor, struct arena *arena, struct gguf_tensor *tensor,
                               struct error *error)
{
    enum status status = read_tensor_name(cursor, arena, tensor, error);
    if (status == STATUS_OK)
        status = read_dims(cursor, tensor, error);
    if (status == STATUS_OK)
        status = read_layout(cursor, tensor, error);
    return status;
}

// Makes offsets count from the beginning of the file, and checks that each tensor is aligned and inside.
static enum status place_tensors(struct gguf_part *part, uint64_t table_end, uint64_t file_size, struct error *error)
{
    uint64_t data_start = (table_end + part->alignment - 1) / part->alignment * part->alignment;
    for (size_t i = 0; i < part->n_tensors; i++) {
        struct gguf_tensor *tensor = &part->tensors[i];
        if (tensor->offset % part->alignment != 0)
            return error_set(error, STATUS_INVALID, "tensor '%s': its offset %llu is no multiple of the alignment, %u",
                             tensor->name, (unsigned long long)tensor->offset, part->alignment);
        uint64_t begin, end;
        if (!checked_add(data_start, tensor->offset, &begin) || !checked_add(begin, tensor->size, &end) ||
            end > file_size)
            return error_set(error, STATUS_INVALID,
                             "tensor '%s': its data (offset %llu, size %llu) goes beyond the file's end: the file has "
                             "%llu bytes and is truncated, or its header is wrong; fetch or copy it again",
                             tensor->name, (unsigned long long)tensor->offset, (unsigned long long)tensor->size,
                             (unsigned long long)file_size);
        tensor->offset = begin;
    }
    return STATUS_OK;
}

static int compare_offsets(const void *a, const void *b)
{
    const struct gguf_tensor *first = *(const struct gguf_tensor *const *)a;
    const struct gguf_tensor *second = *(const struct gguf_tensor *const *)b;
    return first->offset < second->offset ? -1 : first->offset > second->offset;
}

static enum status check_overlap(const struct gguf_part *part, struct error *error)
{
    if (part->n_tensors < 2)
        return STATUS_OK;
    const struct gguf_tensor **sorted = malloc(part->n_tensors * sizeof *sorted);
    if (!sorted)
        return error_memory(error, "the tensor table");
    bool ascending = true;
    for (size_t i = 0; i < part->n_tensors; i++) {
        sorted[i] = &part->tensors[i];
        ascending = ascending && (i == 0 || sorted[i - 1]->offset <= sorted[i]->offset);
    }
    if (!ascending)
        qsort(sorted, part->n_tensors, sizeof *sorted, compare_offsets);
    enum status status = STATUS_OK;
    for (size_t i = 1; i < part->n_tensors && status == STATUS_OK; i++)
        if (sorted[i - 1]->offset + sorted[i - 1]->size > sorted[i]->offset)
            status = error_set(error, STATUS_INVALID, "tensors '%s' and '%s' overlap in the file (at offset %llu)",
                               sorted[i - 1]->name, sorted[i]->name, (unsigned long long)sorted[i]->offset);
    free(sorted);
    return status;
}

static enum status read_tensors(struct cursor *cursor, struct arena *arena, uint64_t n, struct gguf_part *part,
                                struct error *error)
{
    void *memory;
    enum status status = gguf_allocate(arena, n, sizeof *part->tensors, &memory, error);
    if (status != STATUS_OK)
        return status;
    part->tensors = memory;
    for (uint64_t i = 0; i < n; i++) {
        struct gguf_tensor *tensor = &part->tensors[i];
        status = read_tensor(cursor, arena, tensor, error);
        if (status != STATUS_OK) {
            if (tensor->name)
                error_prefix(error, "tensor '%s'", tensor->name);
            else
                error_prefix(error, "tensor %llu of %llu", (unsigned long long)i + 1, (unsigned long long)n);
            return status;
        }
        part->n_tensors++;
    }
    return STATUS_OK;
}

enum status gguf_parse_part(struct cursor *cursor, struct arena *arena, struct gguf_part *part, struct error *error)
{
    *part = (struct gguf_part){0};
    uint64_t n_tensors, n_values;
    enum status status = read_header(cursor, &part->version, &n_tensors, &n_values, error);
    if (status == STATUS_OK)
        status = gguf_parse_values(cursor, arena, n_values, part, error);
    if (status == STATUS_OK)
        status = read_alignment(part, error);
    if (status == STATUS_OK)
        status = read_tensors(cursor, arena, n_tensors, part, error);
    if (status == STATUS_OK)
        status = place_tensors(part, cursor_offset(cursor), cursor->size, error);
    if (status == STATUS_OK)
        status = check_overlap(part, error);
    return status;
}

void gguf_part_free(struct gguf_part *part)
{
    map_free(&part->value_index);
    *part = (struct gguf_part){0};
}
