// An arena is a list of blocks from calloc; the first one in the list is the one that is being filled.
#include "base/arena.h"

#include "base/checked.h"

#include <stdalign.h>
#include <stdlib.h>
#include <string.h>

enum { ALIGNMENT = 16, FIRST_BLOCK = 4096, LARGEST_BLOCK = 1 << 20 };

struct arena_block {
    struct arena_block *next;
    size_t used;
    size_t capacity;
    alignas(ALIGNMENT) unsigned char bytes[];
};

void arena_init(struct arena *arena, size_t limit)
{
    *arena = (struct arena){.limit = limit};
}

void arena_free(struct arena *arena)
{
    struct arena_block *block = arena->blocks;
    while (block) {
        struct arena_block *next = block->next;
        free(block);
        block = next;
    }
    arena_init(arena, arena->limit);
}

static struct arena_block *add_block(struct arena *arena, size_t size)
{
    struct arena_block *head = arena->blocks;
    size_t capacity = head ? head->capacity * 2 : FIRST_BLOCK;
    if (capacity > LARGEST_BLOCK)
        capacity = LARGEST_BLOCK;
    bool own = size > capacity / 4; // a large piece gets a block of its own, so that the rest of head is not lost
    if (own)
        capacity = size;
    size_t total;
    if (__builtin_add_overflow(sizeof(struct arena_block), capacity, &total))
        return NULL;
    struct arena_block *block = calloc(1, total);
    if (!block)
        return NULL;
    block->capacity = capacity;
    if (own && head) {
        block->next = head->next;
        head->next = block;
    } else {
        block->next = head;
        arena->blocks = block;
    }
    return block;
}

void *arena_alloc(struct arena *arena, size_t size)
{
    if (size > SIZE_MAX / 2)
        return NULL;
    size = round_up(size ? size : 1, ALIGNMENT);
    size_t used;
    if (__builtin_add_overflow(arena->used, size, &used) || (arena->limit && used > arena->limit))
        return NULL;
    struct arena_block *block = arena->blocks;
    if (!block || block->capacity - block->used < size)
        block = add_block(arena, size);
    if (!block)
        return NULL;
    void *piece = block->bytes + block->used;
    block->used += size;
    arena->used = used;
    return piece;
}

void *arena_alloc_array(struct arena *arena, size_t count, size_t size)
{
    size_t total;
    return checked_mul_size(count, size, &total) ? arena_alloc(arena, total) : NULL;
}

char *arena_copy_text(struct arena *arena, const char *text, size_t size)
{
    if (size == SIZE_MAX)
        return NULL;
    char *copy = arena_alloc(arena, size + 1);
    if (copy && size)
        memcpy(copy, text, size);
    return copy;
}
