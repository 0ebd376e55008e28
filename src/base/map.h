// A hash map from byte strings to 32-bit values. Keys are not copied: they must outlive the map.
// The hash is keyed per map, so that a hostile file cannot make it slow.
#ifndef MOTE_BASE_MAP_H
#define MOTE_BASE_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct map_entry {
    const char *key;
    size_t size;
    uint32_t hash;
    uint32_t value;
};

struct map {
    struct map_entry *entries; // capacity entries; key NULL: free
    size_t count;
    size_t capacity; // a power of two, or 0
    uint64_t seed;
};

void map_free(struct map *map);

// Makes room for count entries. False where memory ran out.
bool map_reserve(struct map *map, size_t count);

// Adds key with value. Where the key is there already, its value stays, *existing (may be NULL) gets it, and
// *added (may be NULL) is false. Returns false where memory ran out.
bool map_add(struct map *map, const char *key, size_t size, uint32_t value, bool *added, uint32_t *existing);

// What the map is built on, for other tables whose keys come from files: SipHash-1-3, and a seed that nobody can guess
// (address: anything that differs between runs, used where the system has no random numbers).
uint32_t map_hash(uint64_t seed, const char *key, size_t size);
uint64_t map_random_seed(const void *address);

bool map_find(const struct map *map, const char *key, size_t size, uint32_t *value);

#endif
