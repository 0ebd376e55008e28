// A merge sort, bottom up.
#include "text/jinja_sort.h"

#include <string.h>

static bool merge(struct jinja *jinja, const struct sort_item *from, struct sort_item *to, size_t begin, size_t middle,
                  size_t end, bool reverse)
{
    size_t left = begin, right = middle;
    for (size_t at = begin; at < end; at++) {
        bool take_right = left == middle;
        if (left < middle && right < end) {
            // Only what is strictly less overtakes: so equal ones stay in order.
            const struct value *a = &from[right].key, *b = &from[left].key;
            if (!value_less(jinja, reverse ? *b : *a, reverse ? *a : *b, &take_right))
                return false;
        }
        to[at] = take_right ? from[right++] : from[left++];
    }
    return true;
}

bool sort_items(struct jinja *jinja, struct sort_item *items, size_t count, bool reverse)
{
    struct sort_item *from = items, *to = jinja_alloc(jinja, count, sizeof *to);
    if (!to)
        return false;
    for (size_t width = 1; width < count; width *= 2) {
        for (size_t begin = 0; begin < count; begin += 2 * width) {
            size_t middle = begin + width < count ? begin + width : count;
            size_t end = begin + 2 * width < count ? begin + 2 * width : count;
            if (!merge(jinja, from, to, begin, middle, end, reverse))
                return false;
        }
        struct sort_item *other = from;
        from = to;
        to = other;
    }
    if (from != items)
        memcpy(items, from, count * sizeof *items);
    return true;
}

bool sort_entries(struct jinja *jinja, const struct jinja_dict *dict, const struct jinja_dict_entry **entries)
{
    struct sort_item *items = jinja_alloc(jinja, dict->count, sizeof *items);
    struct jinja_dict_entry *sorted = jinja_alloc(jinja, dict->count, sizeof *sorted);
    if (!items || !sorted)
        return false;
    for (size_t i = 0; i < dict->count; i++)
        items[i] = (struct sort_item){dict->entries[i].key, dict->entries[i].value};
    if (!sort_items(jinja, items, dict->count, false))
        return false;
    for (size_t i = 0; i < dict->count; i++)
        sorted[i] = (struct jinja_dict_entry){.key = items[i].key, .value = items[i].value};
    *entries = sorted;
    return true;
}
