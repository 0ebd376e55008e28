// Iteration over everything that can be iterated; and the lazy iterators that Python's generators are: a filter such
// as map computes an element when it is asked for, once.
#ifndef MOTE_TEXT_JINJA_ITERATE_H
#define MOTE_TEXT_JINJA_ITERATE_H

#include "text/jinja_value.h"

struct jinja_iterator {
    // Sets *item to the next element, or to an ABSENT value after the last.
    bool (*next)(struct jinja *jinja, struct jinja_iterator *iterator, struct value *item);
    struct value subject;          // of a container: what is iterated over
    size_t position;               // in it
    struct jinja_iterator *source; // of a filter: where its elements come from
    void *state;                   // of a filter: what it needs besides
    const char *type_name;
};

bool value_is_iterable(struct value value);
bool iterator_open(struct jinja *jinja, struct value value, struct jinja_iterator **iterator);
// Counts a step, so that no iteration is endless.
bool iterator_next(struct jinja *jinja, struct jinja_iterator *iterator, struct value *item);

// A lazy iterator over value by `next`, as a value.
bool iterator_create(struct jinja *jinja, struct value over,
                     bool (*next)(struct jinja *, struct jinja_iterator *, struct value *), void *state,
                     const char *type_name, struct value *out);

// All elements; a list's own where it is one.
bool value_collect(struct jinja *jinja, struct value value, const struct jinja_list **list);

// The element at index (< length) of a list, tuple, string, range or dict view.
bool value_at(struct jinja *jinja, struct value value, size_t index, struct value *item);

#endif
