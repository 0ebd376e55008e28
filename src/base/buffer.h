// A growable run of bytes. A failed allocation is remembered in `failed`, so that a writer may append many
// times and check once; a failed buffer stays empty.
#ifndef MOTE_BASE_BUFFER_H
#define MOTE_BASE_BUFFER_H

#include <stdbool.h>
#include <stddef.h>

struct buffer {
    char *data; // NUL-terminated wherever it is not NULL (the NUL is not counted)
    size_t size;
    size_t capacity;
    bool failed;
};

// A buffer of zeros is empty and ready; buffer_free makes it so again.
void buffer_free(struct buffer *buffer);

// Each returns false where memory ran out (now or earlier).
bool buffer_append(struct buffer *buffer, const void *bytes, size_t size);
bool buffer_append_text(struct buffer *buffer, const char *text);
bool buffer_append_byte(struct buffer *buffer, unsigned char byte);
bool buffer_append_format(struct buffer *buffer, const char *format, ...) __attribute__((format(printf, 2, 3)));
bool buffer_reserve(struct buffer *buffer, size_t additional);

// Grows an array of `*capacity` elements of `size` bytes at *array so that it holds at least `needed`.
// False where memory ran out; the array is then unchanged.
bool array_grow(void **array, size_t *capacity, size_t needed, size_t size);

#endif
