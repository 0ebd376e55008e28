// The limits of a rendering, and how it fails.
#include "text/jinja.h"

#include "base/checked.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { WORK_UNIT = 64 }; // bytes that count as one step

bool jinja_fail(struct jinja *jinja, const char *format, ...)
{
    if (jinja->status != STATUS_OK)
        return false;
    jinja->status = STATUS_INVALID;
    char text[sizeof jinja->error->message];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    error_set(jinja->error, STATUS_INVALID, "line %u: %s", (unsigned)jinja->line, text);
    return false;
}

bool jinja_raise(struct jinja *jinja, const char *message, size_t size)
{
    if (jinja->status != STATUS_OK)
        return false;
    jinja->status = STATUS_INVALID;
    if (!jinja->error)
        return false;
    // Not through error_set, which would write a line break as \x0a: the message must arrive as the template wrote it.
    // Other control characters could speak to a terminal.
    char *out = jinja->error->message;
    size_t used = 0;
    for (size_t i = 0; i < size; i++) {
        unsigned char byte = (unsigned char)message[i];
        bool control = (byte < 0x20 && byte != '\n' && byte != '\t') || byte == 0x7f;
        // A character is written whole or not at all: its first byte says how long it is.
        size_t needed = control ? 4 : byte < 0xc0 ? 1 : byte < 0xe0 ? 2 : byte < 0xf0 ? 3 : 4;
        if (byte < 0x80 || byte >= 0xc0) {
            if (used + needed + 1 > sizeof jinja->error->message)
                break;
        }
        if (control)
            used += (size_t)snprintf(out + used, 5, "\\x%02x", byte);
        else
            out[used++] = (char)byte;
    }
    out[used] = '\0';
    jinja->error->status = STATUS_INVALID;
    return false;
}

void *jinja_alloc(struct jinja *jinja, size_t count, size_t size)
{
    void *memory = arena_alloc_array(&jinja->arena, count, size);
    if (memory || jinja->status != STATUS_OK)
        return memory;
    size_t total;
    if (!checked_mul_size(count, size, &total) || total > jinja->arena.limit - jinja->arena.used) {
        jinja_fail(jinja, "the template needs more than %zu MB of memory", jinja->arena.limit >> 20);
        return NULL;
    }
    jinja->status = error_memory(jinja->error, "a chat template's values");
    return NULL;
}

bool jinja_grow(struct jinja *jinja, void **array, size_t *capacity, size_t needed, size_t size)
{
    if (needed <= *capacity)
        return true;
    size_t grown = *capacity ? *capacity * 2 : 4; // cannot overflow: the arena's limit is far below
    if (grown < needed)
        grown = needed;
    void *memory = jinja_alloc(jinja, grown, size);
    if (!memory)
        return false;
    if (*capacity)
        memcpy(memory, *array, *capacity * size);
    *array = memory;
    *capacity = grown;
    return true;
}

bool jinja_step(struct jinja *jinja)
{
    if (++jinja->steps <= jinja->limits->steps)
        return true;
    return jinja_fail(jinja, "the template takes more than %llu steps", (unsigned long long)jinja->limits->steps);
}

bool jinja_work(struct jinja *jinja, size_t bytes)
{
    jinja->work += bytes % WORK_UNIT;
    jinja->steps += bytes / WORK_UNIT + jinja->work / WORK_UNIT;
    jinja->work %= WORK_UNIT;
    return jinja->steps <= jinja->limits->steps || jinja_step(jinja);
}

bool jinja_enter(struct jinja *jinja)
{
    if (jinja->depth >= jinja->limits->depth)
        return jinja_fail(jinja, "nested more than %u deep", (unsigned)jinja->limits->depth);
    jinja->depth++;
    return true;
}
