// A trie of special tokens: finds the longest that begins at a place of a text.
#ifndef MOTE_TEXT_TRIE_H
#define MOTE_TEXT_TRIE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct trie_node {
    uint32_t child;   // the first one; 0: none
    uint32_t sibling; // the next one; 0: none
    int32_t control;  // a token that is recognised only where the caller allows it, -1: none
    int32_t user;     // a token that is always recognised, -1: none
    unsigned char byte;
};

struct trie {
    struct trie_node *nodes; // node 0 is the root
    size_t count;
    size_t capacity;
    uint32_t first[256]; // the root's children by byte; 0: none
};

void trie_free(struct trie *trie);

// Adds a token of at least one byte; the first of equal ones stays. False where memory ran out.
// spaces, here and below: U+2581 counts as a space.
bool trie_add(struct trie *trie, const char *text, size_t size, int32_t id, bool control, bool spaces);

// The longest token at text[0..size): its id and, in *length, how many bytes of text it takes; -1: none. Considered are
// control tokens of at most control_limit bytes and, where `users`, those that are always recognised.
int32_t trie_find(const struct trie *trie, const char *text, size_t size, bool users, size_t control_limit, bool spaces,
                  size_t *length);

#endif
