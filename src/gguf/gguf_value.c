// Looking up metadata by key, with the checks and messages that all its readers share.
#include "gguf/gguf.h"

#include "gguf/parse.h"

#include <float.h>
#include <string.h>

const struct gguf_value *gguf_find(const struct gguf *gguf, const char *key)
{
    uint32_t index;
    return map_find(&gguf->value_index, key, strlen(key), &index) ? &gguf->values[index] : NULL;
}

const struct gguf_tensor *gguf_find_tensor(const struct gguf *gguf, const char *name)
{
    uint32_t index;
    return map_find(&gguf->tensor_index, name, strlen(name), &index) ? &gguf->tensors[index] : NULL;
}

// The value of key; NULL where it is missing: then *status is an error if it is required.
static const struct gguf_value *find(const struct gguf *gguf, const char *key, bool required, enum status *status,
                                     struct error *error)
{
    const struct gguf_value *value = gguf_find(gguf, key);
    *status = value || !required ? STATUS_OK : error_set(error, STATUS_INVALID, "key '%s' is missing", key);
    return value;
}

static enum status wrong_type(const struct gguf_value *value, const char *expected, struct error *error)
{
    if (value->type == GGUF_ARRAY)
        return error_set(error, STATUS_INVALID, "key '%s' has type array of %s, but %s is expected", value->key.text,
                         gguf_type_name(value->element), expected);
    return error_set(error, STATUS_INVALID, "key '%s' has type %s, but %s is expected", value->key.text,
                     gguf_type_name(value->type), expected);
}

static bool is_signed(enum gguf_type type)
{
    return type == GGUF_I8 || type == GGUF_I16 || type == GGUF_I32 || type == GGUF_I64;
}

static bool is_integer(enum gguf_type type)
{
    return is_signed(type) || type == GGUF_U8 || type == GGUF_U16 || type == GGUF_U32 || type == GGUF_U64;
}

enum status gguf_get_u32(const struct gguf *gguf, const char *key, bool required, uint32_t *value, struct error *error)
{
    enum status status;
    const struct gguf_value *found = find(gguf, key, required, &status, error);
    if (!found)
        return status;
    if (!is_integer(found->type))
        return wrong_type(found, "an integer (type u32)", error);
    if (is_signed(found->type) && found->i < 0)
        return error_set(error, STATUS_INVALID, "key '%s' (type %s) is %lld: it must not be negative", key,
                         gguf_type_name(found->type), (long long)found->i);
    if (found->u > UINT32_MAX)
        return error_set(error, STATUS_INVALID, "key '%s' (type %s) is %llu: that is too large, it must fit 32 bits",
                         key, gguf_type_name(found->type), (unsigned long long)found->u);
    *value = (uint32_t)found->u;
    return STATUS_OK;
}

enum status gguf_get_f32(const struct gguf *gguf, const char *key, bool required, float *value, struct error *error)
{
    enum status status;
    const struct gguf_value *found = find(gguf, key, required, &status, error);
    if (!found)
        return status;
    if (found->type != GGUF_F32 && found->type != GGUF_F64)
        return wrong_type(found, "a number of type f32", error);
    if (found->f != found->f)
        return error_set(error, STATUS_INVALID, "key '%s' (type %s) is NaN: it must be a finite number", key,
                         gguf_type_name(found->type));
    if (found->f > (double)FLT_MAX || found->f < -(double)FLT_MAX)
        return error_set(error, STATUS_INVALID, "key '%s' (type %s) is infinite or too large: it must be a finite f32",
                         key, gguf_type_name(found->type));
    *value = (float)found->f;
    return STATUS_OK;
}

enum status gguf_get_bool(const struct gguf *gguf, const char *key, bool required, bool *value, struct error *error)
{
    enum status status;
    const struct gguf_value *found = find(gguf, key, required, &status, error);
    if (!found)
        return status;
    if (found->type != GGUF_BOOL)
        return wrong_type(found, "a bool", error);
    *value = found->u != 0;
    return STATUS_OK;
}

enum status gguf_get_string(const struct gguf *gguf, const char *key, bool required, struct gguf_string *value,
                            struct error *error)
{
    enum status status;
    const struct gguf_value *found = find(gguf, key, required, &status, error);
    if (!found)
        return status;
    if (found->type != GGUF_STRING)
        return wrong_type(found, "a string", error);
    *value = found->string;
    return STATUS_OK;
}

enum status gguf_get_array(const struct gguf *gguf, const char *key, enum gguf_type element, bool required,
                           const struct gguf_value **value, struct error *error)
{
    enum status status;
    const struct gguf_value *found = find(gguf, key, required, &status, error);
    if (!found)
        return status;
    if (found->type != GGUF_ARRAY || found->element != element) {
        char expected[64] = "an array of ";
        strcat(expected, gguf_type_name(element)); // the longest is "unknown"
        return wrong_type(found, expected, error);
    }
    *value = found;
    return STATUS_OK;
}

enum status gguf_get_integer_array(const struct gguf *gguf, const char *key, bool required,
                                   const struct gguf_value **value, struct error *error)
{
    enum status status;
    const struct gguf_value *found = find(gguf, key, required, &status, error);
    if (!found)
        return status;
    if (found->type != GGUF_ARRAY || !(is_integer(found->element) || found->element == GGUF_BOOL))
        return wrong_type(found, "an array of integers", error);
    *value = found;
    return STATUS_OK;
}

int64_t gguf_array_integer(const struct gguf_value *array, uint64_t i)
{
    switch (array->element) {
    case GGUF_I8:
        return ((const int8_t *)array->array)[i];
    case GGUF_U16:
        return ((const uint16_t *)array->array)[i];
    case GGUF_I16:
        return ((const int16_t *)array->array)[i];
    case GGUF_U32:
        return ((const uint32_t *)array->array)[i];
    case GGUF_I32:
        return ((const int32_t *)array->array)[i];
    case GGUF_U64: // beyond I64: a large negative number, which no caller takes
    case GGUF_I64:
        return ((const int64_t *)array->array)[i];
    default: // U8, BOOL
        return ((const uint8_t *)array->array)[i];
    }
}

static bool array_is_zero(const struct gguf_value *array)
{
    bool zero = array->element != GGUF_STRING && array->element != GGUF_ARRAY;
    for (uint64_t i = 0; i < array->count && zero; i++) {
        if (array->element == GGUF_F32)
            zero = ((const float *)array->array)[i] == 0;
        else if (array->element == GGUF_F64)
            zero = ((const double *)array->array)[i] == 0;
        else
            zero = gguf_array_integer(array, i) == 0;
    }
    return zero || array->count == 0;
}

bool gguf_value_is_zero(const struct gguf_value *value)
{
    if (value->type == GGUF_ARRAY)
        return array_is_zero(value);
    if (value->type == GGUF_F32 || value->type == GGUF_F64)
        return value->f == 0;
    return value->type != GGUF_STRING && value->u == 0;
}
