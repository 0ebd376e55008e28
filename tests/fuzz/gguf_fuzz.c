// Feeds bytes to the GGUF reader. What it accepts must be what gguf.h promises: every tensor inside the file, aligned,
// apart from the others and found by its name; all values readable; and all of it can be written again.
#include "gguf/gguf.h"
#include "gguf/parse.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool condition)
{
    if (!condition)
        abort();
}

// Reads all of a value, so that a sanitizer sees what lies outside of memory.
static uint64_t sum_value(const struct gguf_value *value)
{
    uint64_t sum = 0;
    if (value->type == GGUF_STRING)
        return value->string.size + (unsigned char)value->string.text[value->string.size];
    if (value->type != GGUF_ARRAY)
        return value->u;
    for (uint64_t i = 0; i < value->count; i++) {
        if (value->element == GGUF_STRING)
            sum += strlen(value->strings[i].text);
        else if (value->element == GGUF_ARRAY)
            sum += sum_value(&value->arrays[i]);
        else if (value->element == GGUF_F32)
            sum += ((const float *)value->array)[i] > 0;
        else if (value->element == GGUF_F64)
            sum += ((const double *)value->array)[i] > 0;
        else
            sum += (uint64_t)gguf_array_integer(value, i);
    }
    return sum;
}

static void check_values(const struct gguf *gguf)
{
    for (size_t i = 0; i < gguf->n_values; i++) {
        const struct gguf_value *value = &gguf->values[i];
        const char *key = value->key.text;
        require(gguf_find(gguf, key) == value);
        volatile uint64_t sum = sum_value(value);
        (void)sum;
        struct error error;
        uint32_t integer;
        float number;
        bool truth;
        struct gguf_string text;
        const struct gguf_value *array;
        gguf_get_u32(gguf, key, true, &integer, &error);
        gguf_get_f32(gguf, key, true, &number, &error);
        gguf_get_bool(gguf, key, true, &truth, &error);
        gguf_get_string(gguf, key, true, &text, &error);
        gguf_get_array(gguf, key, GGUF_STRING, true, &array, &error);
        gguf_get_integer_array(gguf, key, true, &array, &error);
    }
}

static void check_tensors(const struct gguf *gguf, const uint8_t *data, size_t size)
{
    float values[512];
    for (size_t i = 0; i < gguf->n_tensors; i++) {
        const struct gguf_tensor *tensor = &gguf->tensors[i];
        require(gguf_find_tensor(gguf, tensor->name) == tensor);
        require(tensor->offset % gguf->alignment == 0 && tensor->offset <= size &&
                tensor->size <= size - tensor->offset);
        const struct dtype_desc *desc = dtype_get(tensor->dtype);
        require(tensor->ne[0] * tensor->ne[1] * tensor->ne[2] * tensor->ne[3] == tensor->n_elements);
        require(tensor->n_elements / desc->block * desc->bytes == tensor->size);
        for (size_t k = 0; k < i && k < 100; k++)
            require(tensor->offset + tensor->size <= gguf->tensors[k].offset ||
                    gguf->tensors[k].offset + gguf->tensors[k].size <= tensor->offset);
        size_t blocks = tensor->size / desc->bytes;
        if (!desc->decode || blocks > 4096)
            continue;
        for (size_t block = 0; block < blocks; block++)
            desc->decode(data + tensor->offset + block * desc->bytes, values, desc->block);
    }
}

static void check_writing(const struct gguf *gguf, const uint8_t *data)
{
    struct gguf_writer *writer;
    struct error error;
    require(gguf_writer_create("/dev/null", &writer, &error) == STATUS_OK);
    for (size_t i = 0; i < gguf->n_values; i++)
        require(gguf_writer_add_value(writer, &gguf->values[i], &error) == STATUS_OK);
    for (size_t i = 0; i < gguf->n_tensors; i++) {
        const struct gguf_tensor *tensor = &gguf->tensors[i];
        require(gguf_writer_add_tensor(writer, tensor->name, tensor->dtype, tensor->n_dims, tensor->ne, &error) ==
                STATUS_OK);
    }
    if (gguf->alignment > 4096) { // padding would take all the time
        gguf_writer_abort(writer);
        return;
    }
    for (size_t i = 0; i < gguf->n_tensors; i++)
        require(gguf_writer_write(writer, data + gguf->tensors[i].offset, gguf->tensors[i].size, &error) == STATUS_OK);
    require(gguf_writer_finish(writer, &error) == STATUS_OK);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct gguf *gguf;
    struct error error = {0};
    enum status status = gguf_open_memory(data, size, &gguf, &error);
    if (status != STATUS_OK) {
        require(!gguf && error.status == status && error.message[0]);
        require(status != STATUS_MEMORY); // memory is bounded by the input, which is small
        return 0;
    }
    check_values(gguf);
    check_tensors(gguf, data, size);
    check_writing(gguf, data);
    gguf_close(gguf);
    return 0;
}
