// Dictionaries in the order of insertion: an array of entries, and above a few of them a hash table of positions.
#include "base/map.h"
#include "text/jinja_number.h"

#include <math.h>
#include <string.h>

enum { FEW_ENTRIES = 8 }; // up to here a search compares hashes one by one

static uint64_t mix(uint64_t hash, uint64_t value)
{
    hash = (hash ^ value) * 0x9e3779b97f4a7c15u;
    return hash ^ hash >> 29;
}

static uint64_t hash_string(struct jinja *jinja, struct jinja_string *string)
{
    if (string->hash == 0)
        string->hash = (uint64_t)map_hash(jinja->seed, string->data, string->size) + 1;
    return string->hash;
}

bool value_hash(struct jinja *jinja, struct value value, uint64_t *hash)
{
    switch (value.kind) {
    case VALUE_UNDEFINED:
    case VALUE_NONE:
        *hash = mix(jinja->seed, value.kind);
        return true;
    case VALUE_BOOL:
        *hash = mix(jinja->seed, value.boolean);
        return true;
    case VALUE_INT:
        *hash = mix(jinja->seed, (uint64_t)value.integer);
        return true;
    case VALUE_BIG: // equal floats have equal hashes: what both have is the nearest double
    case VALUE_FLOAT: {
        double real = 0;
        if (value.kind == VALUE_FLOAT)
            real = value.real;
        else if (!number_to_double(jinja, value, &real))
            return false;
        uint64_t bits;
        memcpy(&bits, &real, sizeof bits);
        bool whole = fabs(real) < 0x1p63 && real == floor(real);
        *hash = mix(jinja->seed, whole ? (uint64_t)(int64_t)real : bits);
        return true;
    }
    case VALUE_STRING:
        *hash = hash_string(jinja, value.string);
        return true;
    case VALUE_TUPLE: {
        uint64_t all = jinja->seed;
        if (!jinja_enter(jinja))
            return false;
        for (size_t i = 0; i < value.list->count; i++) {
            uint64_t item;
            if (!jinja_step(jinja) || !value_hash(jinja, value.list->items[i], &item))
                return false;
            all = mix(all, item);
        }
        jinja_leave(jinja);
        *hash = all;
        return true;
    }
    case VALUE_LIST:
    case VALUE_DICT:
    case VALUE_VIEW:
        return jinja_fail(jinja, "unhashable type: '%s'", value_type_name(value));
    default: // by identity
        *hash = mix(jinja->seed, (uint64_t)(uintptr_t)value.string);
        return true;
    }
}

struct jinja_dict *dict_create(struct jinja *jinja, size_t capacity)
{
    struct jinja_dict *dict = jinja_alloc(jinja, 1, sizeof *dict);
    if (!dict || capacity == 0)
        return dict;
    dict->entries = jinja_alloc(jinja, capacity, sizeof *dict->entries);
    dict->capacity = capacity;
    return dict->entries ? dict : NULL;
}

// The position of key, or SIZE_MAX.
static bool find(struct jinja *jinja, const struct jinja_dict *dict, struct value key, uint64_t hash, size_t *position)
{
    size_t mask = dict->n_slots - 1;
    *position = SIZE_MAX;
    for (size_t i = 0, slot = hash & mask; dict->n_slots || i < dict->count; i++, slot = (slot + 1) & mask) {
        size_t at = i;
        if (dict->n_slots) {
            if (dict->slots[slot] == 0)
                return true;
            at = dict->slots[slot] - 1;
        }
        const struct jinja_dict_entry *entry = &dict->entries[at];
        if (entry->hash != hash)
            continue;
        bool equal;
        if (key.kind == VALUE_STRING && entry->key.kind == VALUE_STRING)
            equal = string_equal(key.string, entry->key.string);
        else if (!value_equal(jinja, key, entry->key, &equal))
            return false;
        if (equal) {
            *position = at;
            return true;
        }
    }
    return true;
}

static void add_slot(struct jinja_dict *dict, size_t position)
{
    size_t slot = dict->entries[position].hash & (dict->n_slots - 1);
    while (dict->slots[slot])
        slot = (slot + 1) & (dict->n_slots - 1);
    dict->slots[slot] = (uint32_t)position + 1;
}

// Keeps at least half of the slots free.
static bool grow_slots(struct jinja *jinja, struct jinja_dict *dict)
{
    if (dict->count < FEW_ENTRIES || dict->count * 2 < dict->n_slots)
        return true;
    if (dict->count >= UINT32_MAX / 8)
        return jinja_fail(jinja, "a dict has too many entries");
    dict->n_slots = dict->n_slots ? dict->n_slots * 2 : FEW_ENTRIES * 4;
    dict->slots = jinja_alloc(jinja, dict->n_slots, sizeof *dict->slots);
    if (!dict->slots)
        return false;
    for (size_t i = 0; i < dict->count; i++)
        add_slot(dict, i);
    return true;
}

bool dict_set(struct jinja *jinja, struct jinja_dict *dict, struct value key, struct value value)
{
    uint64_t hash = 0;
    size_t position = 0;
    if (!value_hash(jinja, key, &hash) || !find(jinja, dict, key, hash, &position))
        return false;
    if (position != SIZE_MAX) {
        dict->entries[position].value = value;
        return true;
    }
    void *entries = dict->entries;
    if (!jinja_grow(jinja, &entries, &dict->capacity, dict->count + 1, sizeof *dict->entries))
        return false;
    dict->entries = entries;
    if (!grow_slots(jinja, dict))
        return false;
    dict->entries[dict->count] = (struct jinja_dict_entry){key, value, hash};
    if (dict->n_slots)
        add_slot(dict, dict->count);
    dict->count++;
    return true;
}

bool dict_get(struct jinja *jinja, const struct jinja_dict *dict, struct value key, struct value *found)
{
    uint64_t hash = 0;
    size_t position = 0;
    if (!value_hash(jinja, key, &hash) || !find(jinja, dict, key, hash, &position))
        return false;
    *found = position == SIZE_MAX ? (struct value){0} : dict->entries[position].value;
    return true;
}

bool dict_set_name(struct jinja *jinja, struct jinja_dict *dict, const char *name, struct value value)
{
    struct value key;
    return value_from_literal(jinja, name, &key) && dict_set(jinja, dict, key, value);
}
