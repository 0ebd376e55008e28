// Cutting sums over K into segments, and runs of segments into subtrees.
#include "tensor/segments.h"

uint32_t grain_of_dtype(enum dtype dtype)
{
    return dtype_get(dtype)->block > 1 ? 32 : 16;
}

void segments_make(struct segments *segments, size_t k, uint32_t grain)
{
    size_t n_grains = (k + grain - 1) / grain;
    segments->n = n_grains < MAX_SEGMENTS ? (uint32_t)n_grains : MAX_SEGMENTS;
    segments->grain = grain;
    for (uint32_t i = 0; i <= MAX_SEGMENTS; i++)
        segments->border[i] = i < segments->n ? (uint32_t)(i * n_grains / segments->n) : (uint32_t)n_grains;
}

void segments_of_product(struct segments *segments, enum dtype dtype, size_t k, uint32_t head)
{
    uint32_t grain = grain_of_dtype(dtype), unit = head == 0 ? grain : head;
    while (unit % grain != 0)
        unit += head;
    segments_make(segments, k, unit);
    uint32_t n_grains = (uint32_t)((k + grain - 1) / grain);
    for (uint32_t s = 0; s <= MAX_SEGMENTS; s++) {
        uint32_t border = segments->border[s] * (unit / grain);
        segments->border[s] = border < n_grains ? border : n_grains;
    }
    segments->grain = grain;
}

// Subtrees within [first, end) of the tree over [begin, stop), appended from n on.
static uint32_t collect(uint32_t begin, uint32_t stop, struct leaves leaves, struct leaves *subtrees, uint32_t n)
{
    if (leaves.first >= stop || leaves.end <= begin)
        return n;
    if (leaves.first <= begin && stop <= leaves.end) {
        subtrees[n] = (struct leaves){.n = leaves.n, .first = (uint8_t)begin, .end = (uint8_t)stop};
        return n + 1;
    }
    uint32_t middle = tree_split(begin, stop);
    n = collect(begin, middle, leaves, subtrees, n);
    return collect(middle, stop, leaves, subtrees, n);
}

uint32_t leaves_subtrees(struct leaves leaves, struct leaves subtrees[MAX_SUBTREES])
{
    return leaves.first < leaves.end ? collect(0, leaves.n, leaves, subtrees, 0) : 0;
}

void segments_part(const struct segments *whole, struct leaves leaves, struct segments *part, size_t *first_element)
{
    uint32_t first = whole->border[leaves.first];
    *part = (struct segments){.n = (uint32_t)leaves.end - leaves.first, .grain = whole->grain};
    for (uint32_t s = 0; s <= MAX_SEGMENTS; s++) {
        uint32_t of = s < part->n ? leaves.first + s : leaves.end;
        part->border[s] = whole->border[of] - first;
    }
    *first_element = (size_t)first * whole->grain;
}
