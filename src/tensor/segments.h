// How the sum over K of a product is cut, and in which order its parts are added: the contract of docs/numerics.md.
// K is cut into at most 8 segments, each one chain of additions; the segments are the leaves of a tree. A mesh gives
// each device whole segments, a run of the leaves; what the device sends is the sum of each subtree that lies wholly
// within its run, so that whoever puts them together makes the additions of one device in their order.
#ifndef MOTE_TENSOR_SEGMENTS_H
#define MOTE_TENSOR_SEGMENTS_H

#include "tensor/dtype.h"

#include <stddef.h>
#include <stdint.h>

enum {
    MAX_SEGMENTS = 8,
    MAX_SUBTREES = 4, // that a run of leaves of a tree of 8 breaks into
};

// The segments of a sum over k elements: segment s is grains border[s] … border[s+1]; the last grain may be partial
// where the type is plain.
struct segments {
    uint32_t n;     // 1 … 8
    uint32_t grain; // elements
    uint32_t border[MAX_SEGMENTS + 1];
};

// Segments of whole grains.
void segments_make(struct segments *segments, size_t k, uint32_t grain);
// The elements [*begin, *end) of segment s.
static inline void segments_range(const struct segments *segments, uint32_t s, size_t k, size_t *begin, size_t *end)
{
    *begin = (size_t)segments->border[s] * segments->grain;
    *end = (size_t)segments->border[s + 1] * segments->grain;
    if (*end > k)
        *end = k;
}

// The grain of a weight's dtype: 32 elements of block formats, 16 of plain ones.
uint32_t grain_of_dtype(enum dtype dtype);
// The segments of a product with a weight of k columns. unit: where segments may be cut, in elements (a head); then
// they are counted in the fewest units that make a multiple of the grain, and written in grains. 0: at any grain.
void segments_of_product(struct segments *segments, enum dtype dtype, size_t k, uint32_t unit);

// Leaves [first, end) of a tree over n leaves. n = 0: none of any tree, which of a product means: all.
struct leaves {
    uint8_t n, first, end;
};

static inline struct leaves leaves_all(uint32_t n)
{
    return (struct leaves){.n = (uint8_t)n, .end = (uint8_t)n};
}

// Where the tree splits leaves [first, end), of which there are at least two: the power of two that is largest below
// their number, behind first.
static inline uint32_t tree_split(uint32_t first, uint32_t end)
{
    uint32_t half = 1;
    while (2 * half < end - first)
        half *= 2;
    return first + half;
}

// The largest subtrees of the tree over leaves.n leaves that lie wholly within the run, ascending; returns how many.
uint32_t leaves_subtrees(struct leaves leaves, struct leaves subtrees[MAX_SUBTREES]);

// The segments [leaves.first, leaves.end) of `whole`, counted from the first one's begin; *first_element gets that.
void segments_part(const struct segments *whole, struct leaves leaves, struct segments *part, size_t *first_element);

#endif
