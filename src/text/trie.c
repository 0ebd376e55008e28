// A trie of nodes with lists of children, except at the root, which is asked at every byte of every text.
#include "text/trie.h"

#include "base/buffer.h"

#include <stdlib.h>
#include <string.h>

void trie_free(struct trie *trie)
{
    free(trie->nodes);
    *trie = (struct trie){0};
}

static uint32_t find_child(const struct trie *trie, uint32_t node, unsigned char byte)
{
    if (node == 0)
        return trie->first[byte];
    uint32_t child = trie->nodes[node].child;
    while (child && trie->nodes[child].byte != byte)
        child = trie->nodes[child].sibling;
    return child;
}

static uint32_t add_child(struct trie *trie, uint32_t node, unsigned char byte)
{
    void *grown = trie->nodes;
    trie->count += trie->count == 0; // node 0
    if (trie->count > UINT32_MAX || !array_grow(&grown, &trie->capacity, trie->count + 1, sizeof *trie->nodes))
        return 0;
    trie->nodes = grown;
    uint32_t child = (uint32_t)trie->count++;
    trie->nodes[child] = (struct trie_node){.control = -1, .user = -1, .byte = byte};
    if (node == 0) {
        trie->first[byte] = child;
    } else {
        trie->nodes[child].sibling = trie->nodes[node].child;
        trie->nodes[node].child = child;
    }
    return child;
}

// The byte by which text[at..size) goes on in the trie; *at moves behind it.
static unsigned char next_byte(const char *text, size_t size, size_t *at, bool spaces)
{
    const char *here = text + *at;
    bool mark = spaces && *here == '\xe2' && size - *at >= 3 && memcmp(here, "\xe2\x96\x81", 3) == 0;
    *at += mark ? 3 : 1;
    return mark ? ' ' : (unsigned char)*here;
}

bool trie_add(struct trie *trie, const char *text, size_t size, int32_t id, bool control, bool spaces)
{
    uint32_t node = 0; // the root: what it would be read for is in trie->first
    for (size_t i = 0; i < size;) {
        unsigned char byte = next_byte(text, size, &i, spaces);
        uint32_t child = find_child(trie, node, byte);
        if (!child && !(child = add_child(trie, node, byte)))
            return false;
        node = child;
    }
    int32_t *token = control ? &trie->nodes[node].control : &trie->nodes[node].user;
    if (*token < 0)
        *token = id;
    return true;
}

int32_t trie_find(const struct trie *trie, const char *text, size_t size, bool users, size_t control_limit, bool spaces,
                  size_t *length)
{
    int32_t found = -1;
    uint32_t node = 0;
    for (size_t i = 0; i < size;) {
        node = find_child(trie, node, next_byte(text, size, &i, spaces));
        if (!node)
            break;
        const struct trie_node *at = &trie->nodes[node];
        bool control = at->control >= 0 && i <= control_limit;
        if (control || (users && at->user >= 0)) {
            found = control ? at->control : at->user;
            *length = i;
        }
    }
    return found;
}
