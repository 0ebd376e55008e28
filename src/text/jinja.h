// One rendering of a template: its memory, limits and error. Everything that a rendering makes (nodes, values, text)
// lies in one arena, which is freed as a whole; nothing is freed before. Functions return false once the
// rendering has failed, and the first failure is the one that is told.
#ifndef MOTE_TEXT_JINJA_H
#define MOTE_TEXT_JINJA_H

#include "base/arena.h"
#include "base/error.h"
#include "text/template.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct jinja_dict;
struct jinja_scope;
struct jinja_syntax;
struct jinja_writer;

struct jinja {
    struct arena arena;
    const struct template_limits *limits;
    uint64_t steps; // done so far
    size_t work;    // bytes handled that are not a step yet
    uint32_t depth; // of nested evaluations, now
    uint64_t seed;  // of the hashes
    int64_t now;    // seconds since 1970
    struct error *error;
    enum status status;          // STATUS_OK until something fails
    uint32_t line;               // of the template: where evaluation is now
    bool autoescape;             // of the code being run
    struct jinja_dict *context;  // the template's variables: globals, then the input
    struct jinja_scope *root;    // what the template sets at its top level
    struct jinja_writer *output; // where text goes now
    const struct jinja_syntax *syntax;
};

// Fails with "line N: " and the formatted message. Always false.
bool jinja_fail(struct jinja *jinja, const char *format, ...) __attribute__((format(printf, 2, 3)));

// Fails with exactly this text: what raise_exception does.
bool jinja_raise(struct jinja *jinja, const char *message, size_t size);

// Memory of zeros from the arena, or NULL: then the rendering has failed.
void *jinja_alloc(struct jinja *jinja, size_t count, size_t size);

// Grows an array in the arena so that it holds `needed` elements of `size` bytes.
bool jinja_grow(struct jinja *jinja, void **array, size_t *capacity, size_t needed, size_t size);

// Counts a step: a node evaluated, an element looked at.
bool jinja_step(struct jinja *jinja);

// Counts bytes of text that are handled at once: WORK_UNIT of them are a step.
bool jinja_work(struct jinja *jinja, size_t bytes);

// Around every recursion: false where the depth limit is reached (then do not leave).
bool jinja_enter(struct jinja *jinja);
static inline void jinja_leave(struct jinja *jinja)
{
    jinja->depth--;
}

#endif
