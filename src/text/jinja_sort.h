// Stable sorting of values by Python's <.
#ifndef MOTE_TEXT_JINJA_SORT_H
#define MOTE_TEXT_JINJA_SORT_H

#include "text/jinja_value.h"

struct sort_item {
    struct value key;
    struct value value;
};

// Sorts in place by key; reverse keeps the order of equal ones. Fails where keys cannot be compared.
bool sort_items(struct jinja *jinja, struct sort_item *items, size_t count, bool reverse);

// The entries of a dict in the order of their keys.
bool sort_entries(struct jinja *jinja, const struct jinja_dict *dict, const struct jinja_dict_entry **entries);

#endif
