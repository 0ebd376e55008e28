// Open addressing with linear probing over at most three quarters of a power of two. The hash is SipHash-1-3
// (Aumasson and Bernstein) under a random seed, so that nobody can choose keys that collide.
#include "base/map.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#ifdef __linux__
#include <sys/random.h>
#endif

static uint64_t rotate(uint64_t value, int bits)
{
    return value << bits | value >> (64 - bits);
}

static void sip_round(uint64_t v[4])
{
    v[0] += v[1];
    v[1] = rotate(v[1], 13) ^ v[0];
    v[0] = rotate(v[0], 32);
    v[2] += v[3];
    v[3] = rotate(v[3], 16) ^ v[2];
    v[0] += v[3];
    v[3] = rotate(v[3], 21) ^ v[0];
    v[2] += v[1];
    v[1] = rotate(v[1], 17) ^ v[2];
    v[2] = rotate(v[2], 32);
}

uint32_t map_hash(uint64_t seed, const char *key, size_t size)
{
    uint64_t other = rotate(seed, 29) ^ 0x9e3779b97f4a7c15u; // the second half of SipHash's key
    uint64_t v[4] = {seed ^ 0x736f6d6570736575u, other ^ 0x646f72616e646f6du, seed ^ 0x6c7967656e657261u,
                     other ^ 0x7465646279746573u};
    uint64_t word;
    size_t i = 0;
    for (; size - i >= sizeof word; i += sizeof word) {
        memcpy(&word, key + i, sizeof word);
        v[3] ^= word;
        sip_round(v);
        v[0] ^= word;
    }
    word = 0;
    memcpy(&word, key + i, size - i);
    word |= (uint64_t)size << 56;
    v[3] ^= word;
    sip_round(v);
    v[0] ^= word;
    v[2] ^= 0xff;
    for (int round = 0; round < 3; round++)
        sip_round(v);
    uint64_t hash = v[0] ^ v[1] ^ v[2] ^ v[3];
    return (uint32_t)(hash ^ hash >> 32);
}

uint64_t map_random_seed(const void *address)
{
    uint64_t seed = 0;
#ifdef __linux__
    if (getrandom(&seed, sizeof seed, GRND_NONBLOCK) == (ssize_t)sizeof seed)
        return seed;
#endif
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_nsec << 32 ^ (uint64_t)now.tv_sec ^ (uint64_t)(uintptr_t)address;
}

void map_free(struct map *map)
{
    free(map->entries);
    *map = (struct map){0};
}

bool map_reserve(struct map *map, size_t count)
{
    if (count > SIZE_MAX / 4 / sizeof(struct map_entry))
        return false;
    size_t capacity = map->capacity ? map->capacity : 16;
    while (capacity / 4 * 3 < count)
        capacity *= 2;
    if (capacity == map->capacity)
        return true;
    struct map_entry *entries = calloc(capacity, sizeof *entries);
    if (!entries)
        return false;
    if (map->capacity == 0)
        map->seed = map_random_seed(entries);
    for (size_t i = 0; i < map->capacity; i++) {
        if (!map->entries[i].key)
            continue;
        size_t at = map->entries[i].hash & (capacity - 1);
        while (entries[at].key)
            at = (at + 1) & (capacity - 1);
        entries[at] = map->entries[i];
    }
    free(map->entries);
    map->entries = entries;
    map->capacity = capacity;
    return true;
}

// The entry that holds key, or the free one where it belongs. The map has a free entry always.
static struct map_entry *find_entry(const struct map *map, const char *key, size_t size, uint32_t hash)
{
    size_t at = hash & (map->capacity - 1);
    for (;; at = (at + 1) & (map->capacity - 1)) {
        struct map_entry *entry = &map->entries[at];
        if (!entry->key)
            return entry;
        if (entry->hash == hash && entry->size == size && memcmp(entry->key, key, size) == 0)
            return entry;
    }
}

bool map_add(struct map *map, const char *key, size_t size, uint32_t value, bool *added, uint32_t *existing)
{
    if (!map_reserve(map, map->count + 1))
        return false;
    if (!key)
        key = ""; // NULL marks a free entry
    uint32_t hash = map_hash(map->seed, key, size);
    struct map_entry *entry = find_entry(map, key, size, hash);
    bool is_new = !entry->key;
    if (is_new) {
        *entry = (struct map_entry){.key = key, .size = size, .hash = hash, .value = value};
        map->count++;
    }
    if (added)
        *added = is_new;
    if (existing)
        *existing = entry->value;
    return true;
}

bool map_find(const struct map *map, const char *key, size_t size, uint32_t *value)
{
    if (map->count == 0)
        return false;
    if (!key)
        key = "";
    const struct map_entry *entry = find_entry(map, key, size, map_hash(map->seed, key, size));
    if (!entry->key)
        return false;
    if (value)
        *value = entry->value;
    return true;
}
