// Merging, for both kinds of vocabulary: a linked list of symbols and a heap of the merges that are possible. An entry
// of the heap is stale when its left symbol's best merge has another rank by now; it is dropped when it comes up. Every
// merge adds at most two entries, so a word of n symbols takes O(n log n) steps whatever it is made of.
#include "text/tokenizer_internal.h"

#include <string.h>

// Entries pushed and popped and symbols made, by this thread.
static _Thread_local uint64_t merge_steps;

uint64_t tokenizer_merge_steps(void)
{
    return merge_steps;
}

bool merge_reserve(struct encoder *encoder, size_t size)
{
    if (size >= UINT32_MAX / 4)
        return false;
    void *symbols = encoder->symbols;
    void *heap = encoder->heap;
    bool fits = array_grow(&symbols, &encoder->symbols_capacity, size, sizeof *encoder->symbols) &&
                array_grow(&heap, &encoder->heap_capacity, 3 * size, sizeof *encoder->heap);
    encoder->symbols = symbols;
    encoder->heap = heap;
    return fits;
}

static void sift_down(uint64_t *heap, size_t count, size_t at)
{
    uint64_t moved = heap[at];
    for (size_t child; (child = 2 * at + 1) < count; at = child) {
        if (child + 1 < count && heap[child + 1] < heap[child])
            child++;
        if (moved <= heap[child])
            break;
        heap[at] = heap[child];
    }
    heap[at] = moved;
}

static void heap_push(struct encoder *encoder, uint64_t entry)
{
    uint64_t *heap = encoder->heap;
    size_t at = encoder->n_heap++;
    while (at > 0 && entry < heap[(at - 1) / 2]) {
        heap[at] = heap[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    heap[at] = entry;
    merge_steps++;
}

static uint64_t heap_pop(struct encoder *encoder)
{
    uint64_t *heap = encoder->heap;
    uint64_t top = heap[0];
    heap[0] = heap[--encoder->n_heap];
    if (encoder->n_heap > 1)
        sift_down(heap, encoder->n_heap, 0);
    merge_steps++;
    return top;
}

// The entry for the merge of symbol `left` with the one behind it.
static uint64_t entry_of(const struct encoder *encoder, uint32_t left)
{
    return (uint64_t)encoder->symbols[left].rank << 32 | left;
}

static void look_up(struct encoder *encoder, const char *word, uint32_t left, merge_lookup *lookup)
{
    struct merge_symbol *symbol = &encoder->symbols[left];
    symbol->rank = NO_MERGE;
    if (symbol->next < encoder->n_symbols)
        lookup(encoder, word, symbol, &encoder->symbols[symbol->next]);
}

void merge_symbols(struct encoder *encoder, const char *word, merge_lookup *lookup)
{
    uint32_t n = (uint32_t)encoder->n_symbols;
    struct merge_symbol *symbols = encoder->symbols;
    encoder->n_heap = 0;
    merge_steps += n;
    for (uint32_t i = 0; i < n; i++) {
        symbols[i].previous = i - 1;
        symbols[i].next = i + 1;
        look_up(encoder, word, i, lookup);
        if (symbols[i].rank != NO_MERGE)
            encoder->heap[encoder->n_heap++] = entry_of(encoder, i);
    }
    for (size_t i = encoder->n_heap / 2; i-- > 0;)
        sift_down(encoder->heap, encoder->n_heap, i);
    while (encoder->n_heap > 0) {
        uint64_t entry = heap_pop(encoder);
        uint32_t at = (uint32_t)entry;
        struct merge_symbol *left = &symbols[at];
        if (left->rank == NO_MERGE || left->rank != entry >> 32)
            continue;
        struct merge_symbol *right = &symbols[left->next];
        left->id = left->merged;
        left->end = right->end;
        left->next = right->next;
        right->rank = NO_MERGE; // it is gone: no entry of it is valid
        if (left->next < n)
            symbols[left->next].previous = at;
        look_up(encoder, word, at, lookup);
        if (left->rank != NO_MERGE)
            heap_push(encoder, entry_of(encoder, at));
        if (left->previous < n) {
            look_up(encoder, word, left->previous, lookup);
            if (symbols[left->previous].rank != NO_MERGE)
                heap_push(encoder, entry_of(encoder, left->previous));
        }
    }
}

// The first n < 8 bytes at text as a number, the first lowest; none behind them is read.
static uint64_t load_few(const char *text, size_t n)
{
    if (n >= 4) {
        uint32_t low, high;
        memcpy(&low, text, 4);
        memcpy(&high, text + n - 4, 4);
        return low | (uint64_t)high << 8 * (n - 4); // bytes in both are equal
    }
    uint64_t value = 0;
    for (size_t i = 0; i < n; i++)
        value |= (uint64_t)(unsigned char)text[i] << 8 * i;
    return value;
}

// The words' hash need not resist anybody: a collision costs one merge of at most 24 bytes.
static struct word_entry *word_entry(const struct encoder *encoder, const char *word, size_t size, uint64_t key[3])
{
    key[0] = key[1] = key[2] = 0;
    for (size_t i = 0; i < size / 8; i++)
        memcpy(&key[i], word + 8 * i, 8);
    if (size % 8)
        key[size / 8] = load_few(word + size / 8 * 8, size % 8);
    uint64_t hash = (key[0] ^ (key[1] * 0x9e3779b97f4a7c15u) ^ (key[2] * 0xc2b2ae3d27d4eb4fu)) * 0xff51afd7ed558ccdu;
    hash ^= hash >> 32;
    return &encoder->words[(hash * 0x9e3779b97f4a7c15u >> 32) & (encoder->n_words - 1)];
}

bool words_find(struct encoder *encoder, const char *word, size_t size, enum status *status)
{
    uint64_t key[3];
    if (encoder->n_words == 0 || size > sizeof key)
        return false;
    const struct word_entry *entry = word_entry(encoder, word, size, key);
    if (entry->size != size || entry->key[0] != key[0] || entry->key[1] != key[1] || entry->key[2] != key[2])
        return false;
    *status = STATUS_OK;
    for (size_t i = 0; i < entry->count && *status == STATUS_OK; i++)
        *status = encoder_append(encoder, encoder->ids->ids[entry->first + i]);
    encoder->after_unknown = false;
    return true;
}

void words_add(struct encoder *encoder, const char *word, size_t size, size_t first)
{
    uint64_t key[3];
    if (encoder->n_words == 0 || size > sizeof key || size == 0 || first > UINT32_MAX)
        return;
    struct word_entry *entry = word_entry(encoder, word, size, key);
    memcpy(entry->key, key, sizeof key);
    entry->size = (uint8_t)size;
    entry->first = (uint32_t)first;
    entry->count = (uint8_t)(encoder->ids->count - first);
}
