// A position in a file that is read front to back, through a window: metadata is millions of small pieces, and each
// must not cost a system call. Also reads from memory (for fuzzing). Every read is checked against the end.
#ifndef MOTE_GGUF_CURSOR_H
#define MOTE_GGUF_CURSOR_H

#include "base/error.h"
#include "base/file.h"

#include <stddef.h>
#include <stdint.h>

struct cursor {
    const struct file *file;     // NULL: all is in the window already
    unsigned char *buffer;       // the window's own memory; NULL where it is the caller's
    const unsigned char *window; // bytes [start, start + available) of the file
    size_t available;
    size_t position; // in the window
    uint64_t start;
    uint64_t size; // of the file
};

enum status cursor_open_file(struct cursor *cursor, const struct file *file, struct error *error);
void cursor_open_memory(struct cursor *cursor, const void *bytes, size_t size);
void cursor_close(struct cursor *cursor);

static inline uint64_t cursor_offset(const struct cursor *cursor)
{
    return cursor->start + cursor->position;
}

static inline uint64_t cursor_remaining(const struct cursor *cursor)
{
    return cursor->size - cursor_offset(cursor);
}

// Reads size bytes. Where the file ends before: an error that says that it is truncated, and inside what.
enum status cursor_read(struct cursor *cursor, void *bytes, size_t size, const char *what, struct error *error);
enum status cursor_read_u32(struct cursor *cursor, uint32_t *value, const char *what, struct error *error);
enum status cursor_read_u64(struct cursor *cursor, uint64_t *value, const char *what, struct error *error);

#endif
