// Reading front to back through a window.
#include "gguf/cursor.h"

#include <stdlib.h>
#include <string.h>

enum { WINDOW = 1 << 18 };

enum status cursor_open_file(struct cursor *cursor, const struct file *file, struct error *error)
{
    size_t size = file->size < WINDOW ? (size_t)file->size : WINDOW;
    unsigned char *buffer = malloc(size ? size : 1);
    *cursor = (struct cursor){.file = file, .buffer = buffer, .window = buffer, .size = file->size};
    return buffer ? STATUS_OK : error_memory(error, "reading a GGUF file");
}

void cursor_open_memory(struct cursor *cursor, const void *bytes, size_t size)
{
    *cursor = (struct cursor){.window = bytes, .available = size, .size = size};
}

void cursor_close(struct cursor *cursor)
{
    free(cursor->buffer);
    *cursor = (struct cursor){0};
}

// Moves the window so that it begins at the cursor's position.
static enum status refill(struct cursor *cursor, struct error *error)
{
    uint64_t start = cursor_offset(cursor);
    uint64_t rest = cursor->size - start;
    size_t size = rest < WINDOW ? (size_t)rest : WINDOW;
    enum status status = file_read(cursor->file, start, cursor->buffer, size, error);
    if (status == STATUS_OK) {
        cursor->start = start;
        cursor->position = 0;
        cursor->available = size;
    }
    return status;
}

enum status cursor_read(struct cursor *cursor, void *bytes, size_t size, const char *what, struct error *error)
{
    if (size > cursor_remaining(cursor))
        return error_set(error, STATUS_INVALID,
                         "the file is truncated: it ends inside %s, after %llu bytes; fetch or copy it again", what,
                         (unsigned long long)cursor->size);
    unsigned char *out = bytes;
    while (size) {
        if (cursor->position == cursor->available) {
            enum status status = refill(cursor, error);
            if (status != STATUS_OK)
                return status;
        }
        size_t piece = cursor->available - cursor->position;
        if (piece > size)
            piece = size;
        memcpy(out, cursor->window + cursor->position, piece);
        cursor->position += piece;
        out += piece;
        size -= piece;
    }
    return STATUS_OK;
}

enum status cursor_read_u32(struct cursor *cursor, uint32_t *value, const char *what, struct error *error)
{
    return cursor_read(cursor, value, sizeof *value, what, error);
}

enum status cursor_read_u64(struct cursor *cursor, uint64_t *value, const char *what, struct error *error)
{
    return cursor_read(cursor, value, sizeof *value, what, error);
}
