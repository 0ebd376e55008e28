// A growable run of bytes, and the growth of arrays.
#include "base/buffer.h"

#include "base/checked.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void buffer_free(struct buffer *buffer)
{
    free(buffer->data);
    *buffer = (struct buffer){0};
}

static bool fail(struct buffer *buffer)
{
    free(buffer->data);
    *buffer = (struct buffer){.failed = true};
    return false;
}

bool buffer_reserve(struct buffer *buffer, size_t additional)
{
    if (buffer->failed)
        return false;
    size_t needed;
    if (__builtin_add_overflow(buffer->size, additional, &needed) || needed == SIZE_MAX)
        return fail(buffer);
    void *data = buffer->data;
    if (!array_grow(&data, &buffer->capacity, needed + 1, 1))
        return fail(buffer);
    buffer->data = data;
    buffer->data[buffer->size] = '\0';
    return true;
}

bool buffer_append(struct buffer *buffer, const void *bytes, size_t size)
{
    if (!buffer_reserve(buffer, size))
        return false;
    if (size)
        memcpy(buffer->data + buffer->size, bytes, size);
    buffer->size += size;
    buffer->data[buffer->size] = '\0';
    return true;
}

bool buffer_append_text(struct buffer *buffer, const char *text)
{
    return buffer_append(buffer, text, strlen(text));
}

bool buffer_append_byte(struct buffer *buffer, unsigned char byte)
{
    return buffer_append(buffer, &byte, 1);
}

bool buffer_append_format(struct buffer *buffer, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(NULL, 0, format, arguments);
    va_end(arguments);
    if (length < 0)
        return fail(buffer);
    if (!buffer_reserve(buffer, (size_t)length))
        return false;
    va_start(arguments, format);
    vsnprintf(buffer->data + buffer->size, (size_t)length + 1, format, arguments);
    va_end(arguments);
    buffer->size += (size_t)length;
    return true;
}

bool array_grow(void **array, size_t *capacity, size_t needed, size_t size)
{
    if (needed <= *capacity)
        return true;
    size_t wanted =
        *capacity + *capacity / 2; // cannot overflow: the array exists, so it is at most half the address space
    if (wanted < needed)
        wanted = needed;
    if (wanted < 16)
        wanted = 16;
    size_t bytes;
    if (!checked_mul_size(wanted, size, &bytes))
        return false;
    void *grown = realloc(*array, bytes);
    if (!grown)
        return false;
    *array = grown;
    *capacity = wanted;
    return true;
}
