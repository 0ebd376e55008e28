// An arena: many small allocations with one lifetime, freed together.
#ifndef MOTE_BASE_ARENA_H
#define MOTE_BASE_ARENA_H

#include <stddef.h>

struct arena_block;

struct arena {
    struct arena_block *blocks;
    size_t used;  // bytes handed out
    size_t limit; // most bytes that may be handed out; 0: no limit
};

void arena_init(struct arena *arena, size_t limit);

// Frees all that came from the arena; the arena may be used again.
void arena_free(struct arena *arena);

// size bytes of zeros, aligned to 16. NULL where memory or the limit is exhausted. size 0 gives a valid pointer.
void *arena_alloc(struct arena *arena, size_t size);

// count * size bytes of zeros; NULL also where the product overflows.
void *arena_alloc_array(struct arena *arena, size_t count, size_t size);

// A copy of size bytes of text with a NUL behind it.
char *arena_copy_text(struct arena *arena, const char *text, size_t size);

#endif
