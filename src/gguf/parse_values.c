// The metadata of a GGUF file: key-value pairs. Every count and length is compared with what is left of the file
// before memory is taken for it, so that memory stays within a small multiple of the file's size.
#include "gguf/parse.h"

#include "base/utf8.h"

#include <string.h>

static const struct {
    const char *name;
    size_t size;
} types[] = {
    [GGUF_U8] = {"u8", 1},         [GGUF_I8] = {"i8", 1},       [GGUF_U16] = {"u16", 2}, [GGUF_I16] = {"i16", 2},
    [GGUF_U32] = {"u32", 4},       [GGUF_I32] = {"i32", 4},     [GGUF_F32] = {"f32", 4}, [GGUF_BOOL] = {"bool", 1},
    [GGUF_STRING] = {"string", 0}, [GGUF_ARRAY] = {"array", 0}, [GGUF_U64] = {"u64", 8}, [GGUF_I64] = {"i64", 8},
    [GGUF_F64] = {"f64", 8},
};

enum { N_TYPES = sizeof types / sizeof types[0] };

const char *gguf_type_name(enum gguf_type type)
{
    return (unsigned)type < N_TYPES ? types[type].name : "unknown";
}

size_t gguf_type_size(enum gguf_type type)
{
    return (unsigned)type < N_TYPES ? types[type].size : 0;
}

static enum status read_string(struct cursor *cursor, struct arena *arena, struct gguf_string *string,
                               struct error *error)
{
    uint64_t size;
    enum status status = cursor_read_u64(cursor, &size, "a string's length", error);
    if (status != STATUS_OK)
        return status;
    if (size > cursor_remaining(cursor))
        return error_set(error, STATUS_INVALID,
                         "a string's length is %llu bytes, but the file ends %llu bytes behind it",
                         (unsigned long long)size, (unsigned long long)cursor_remaining(cursor));
    void *text;
    status = gguf_allocate(arena, size + 1, 1, &text, error);
    if (status != STATUS_OK)
        return status;
    *string = (struct gguf_string){text, (size_t)size};
    return cursor_read(cursor, text, (size_t)size, "a string", error);
}

static enum status check_bools(const unsigned char *bools, uint64_t n, struct error *error)
{
    for (uint64_t i = 0; i < n; i++)
        if (bools[i] > 1)
            return error_set(error, STATUS_INVALID, "a bool has the value %u: only 0 and 1 are allowed", bools[i]);
    return STATUS_OK;
}

// Signed and unsigned integers of any size, widened.
static int64_t widen_signed(enum gguf_type type, const void *bytes)
{
    int8_t i8;
    int16_t i16;
    int32_t i32;
    int64_t i64;
    switch (gguf_type_size(type)) {
    case 1:
        memcpy(&i8, bytes, sizeof i8);
        return i8;
    case 2:
        memcpy(&i16, bytes, sizeof i16);
        return i16;
    case 4:
        memcpy(&i32, bytes, sizeof i32);
        return i32;
    default:
        memcpy(&i64, bytes, sizeof i64);
        return i64;
    }
}

static enum status read_scalar(struct cursor *cursor, struct gguf_value *value, struct error *error)
{
    unsigned char bytes[8] = {0};
    enum status status = cursor_read(cursor, bytes, gguf_type_size(value->type), "a value", error);
    if (status != STATUS_OK)
        return status;
    float f32;
    switch (value->type) {
    case GGUF_F32:
        memcpy(&f32, bytes, sizeof f32);
        value->f = f32;
        return STATUS_OK;
    case GGUF_I8:
    case GGUF_I16:
    case GGUF_I32:
    case GGUF_I64:
        value->i = widen_signed(value->type, bytes);
        return STATUS_OK;
    case GGUF_BOOL:
        value->u = bytes[0];
        return check_bools(bytes, 1, error);
    default: // unsigned and F64: the bytes as they are
        memcpy(&value->u, bytes, sizeof value->u);
        return STATUS_OK;
    }
}

static enum status read_array(struct cursor *cursor, struct arena *arena, struct gguf_value *value, int depth,
                              struct error *error);

static enum status read_string_elements(struct cursor *cursor, struct arena *arena, struct gguf_value *value,
                                        struct error *error)
{
    void *memory;
    enum status status = gguf_allocate(arena, value->count, sizeof(struct gguf_string), &memory, error);
    if (status != STATUS_OK)
        return status;
    struct gguf_string *strings = memory;
    value->strings = strings;
    for (uint64_t i = 0; i < value->count; i++) {
        status = read_string(cursor, arena, &strings[i], error);
        if (status != STATUS_OK) {
            error_prefix(error, "element %llu of %llu", (unsigned long long)i, (unsigned long long)value->count);
            return status;
        }
    }
    return STATUS_OK;
}

static enum status read_array_elements(struct cursor *cursor, struct arena *arena, struct gguf_value *value, int depth,
                                       struct error *error)
{
    void *memory;
    enum status status = gguf_allocate(arena, value->count, sizeof(struct gguf_value), &memory, error);
    if (status != STATUS_OK)
        return status;
    struct gguf_value *arrays = memory;
    value->arrays = arrays;
    for (uint64_t i = 0; i < value->count; i++) {
        arrays[i].key = (struct gguf_string){"", 0};
        arrays[i].type = GGUF_ARRAY;
        status = read_array(cursor, arena, &arrays[i], depth + 1, error);
        if (status != STATUS_OK)
            return status;
    }
    return STATUS_OK;
}

static enum status read_array(struct cursor *cursor, struct arena *arena, struct gguf_value *value, int depth,
                              struct error *error)
{
    if (depth > GGUF_DEEPEST_ARRAY)
        return error_set(error, STATUS_INVALID, "arrays are nested more than %d deep", GGUF_DEEPEST_ARRAY);
    uint32_t element;
    uint64_t count;
    enum status status = cursor_read_u32(cursor, &element, "an array's element type", error);
    if (status == STATUS_OK)
        status = cursor_read_u64(cursor, &count, "an array's length", error);
    if (status != STATUS_OK)
        return status;
    if (element >= N_TYPES)
        return error_set(error, STATUS_INVALID, "the element type of an array is %u, which GGUF does not have",
                         element);
    // A string takes at least its length (8 bytes), an array its type and length (12).
    size_t least = element == GGUF_STRING ? 8 : element == GGUF_ARRAY ? 12 : gguf_type_size(element);
    if (count > cursor_remaining(cursor) / least)
        return error_set(
            error, STATUS_INVALID, "an array's length is %llu (of %s), but the file ends %llu bytes behind it",
            (unsigned long long)count, gguf_type_name(element), (unsigned long long)cursor_remaining(cursor));
    value->element = element;
    value->count = count;
    if (element == GGUF_STRING)
        return read_string_elements(cursor, arena, value, error);
    if (element == GGUF_ARRAY)
        return read_array_elements(cursor, arena, value, depth, error);
    size_t size = (size_t)count * gguf_type_size(element);
    void *elements;
    status = gguf_allocate(arena, count, gguf_type_size(element), &elements, error);
    if (status != STATUS_OK)
        return status;
    value->array = elements;
    status = cursor_read(cursor, elements, size, "an array", error);
    if (status == STATUS_OK && element == GGUF_BOOL)
        status = check_bools(elements, count, error);
    return status;
}

static enum status read_key(struct cursor *cursor, struct arena *arena, struct gguf_string *key, struct error *error)
{
    uint64_t size;
    enum status status = cursor_read_u64(cursor, &size, "a key's length", error);
    if (status != STATUS_OK)
        return status;
    if (size == 0)
        return error_set(error, STATUS_INVALID, "the key is empty");
    if (size > GGUF_LONGEST_KEY)
        return error_set(error, STATUS_INVALID, "the key's length is %llu bytes: GGUF allows at most %d",
                         (unsigned long long)size, GGUF_LONGEST_KEY);
    void *memory;
    status = gguf_allocate(arena, size + 1, 1, &memory, error);
    if (status != STATUS_OK)
        return status;
    const char *text = memory;
    status = cursor_read(cursor, memory, (size_t)size, "a key", error);
    if (status != STATUS_OK)
        return status;
    if (!utf8_valid(text, (size_t)size, NULL) || memchr(text, 0, (size_t)size))
        return error_set(error, STATUS_INVALID, "the key '%s' is not valid UTF-8 (or has a NUL in it)", text);
    *key = (struct gguf_string){text, (size_t)size};
    return STATUS_OK;
}

static enum status read_value(struct cursor *cursor, struct arena *arena, struct gguf_value *value, struct error *error)
{
    uint32_t type;
    enum status status = cursor_read_u32(cursor, &type, "a value's type", error);
    if (status != STATUS_OK)
        return status;
    if (type >= N_TYPES)
        return error_set(error, STATUS_INVALID, "the value's type is %u, which GGUF does not have", type);
    value->type = type;
    if (type == GGUF_STRING)
        return read_string(cursor, arena, &value->string, error);
    if (type == GGUF_ARRAY)
        return read_array(cursor, arena, value, 1, error);
    return read_scalar(cursor, value, error);
}

enum status gguf_parse_values(struct cursor *cursor, struct arena *arena, uint64_t n, struct gguf_part *part,
                              struct error *error)
{
    void *memory;
    enum status status = gguf_allocate(arena, n, sizeof *part->values, &memory, error);
    if (status != STATUS_OK)
        return status;
    part->values = memory;
    if (!map_reserve(&part->value_index, (size_t)n))
        return error_memory(error, "the metadata");
    for (uint32_t i = 0; i < n; i++) {
        struct gguf_value *value = &part->values[i];
        status = read_key(cursor, arena, &value->key, error);
        if (status != STATUS_OK) {
            error_prefix(error, "key %u of %llu", i + 1, (unsigned long long)n);
            return status;
        }
        bool added;
        if (!map_add(&part->value_index, value->key.text, value->key.size, i, &added, NULL))
            return error_memory(error, "the metadata");
        status = added ? read_value(cursor, arena, value, error)
                       : error_set(error, STATUS_INVALID, "it is there twice: duplicate keys are not allowed");
        if (status != STATUS_OK) {
            error_prefix(error, "key '%s'", value->key.text);
            return status;
        }
        part->n_values++;
    }
    return STATUS_OK;
}
