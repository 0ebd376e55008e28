// See jinja_iterate.h.
#include "text/jinja_iterate.h"

#include "text/jinja_string.h"

static bool view_item(struct jinja *jinja, const struct jinja_dict *dict, enum view_kind kind, size_t index,
                      struct value *item)
{
    const struct jinja_dict_entry *entry = &dict->entries[index];
    if (kind == VIEW_ITEMS)
        return value_pair(jinja, entry->key, entry->value, item);
    *item = kind == VIEW_KEYS ? entry->key : entry->value;
    return true;
}

bool value_at(struct jinja *jinja, struct value value, size_t index, struct value *item)
{
    switch (value.kind) {
    case VALUE_LIST:
    case VALUE_TUPLE:
        *item = value.list->items[index];
        return true;
    case VALUE_RANGE:
        *item = value_int(value.range->start + (int64_t)index * value.range->step);
        return true;
    case VALUE_VIEW:
        return view_item(jinja, value.view->dict, value.view->kind, index, item);
    case VALUE_DICT:
        return view_item(jinja, value.dict, VIEW_KEYS, index, item);
    default: { // a string
        size_t begin = string_offset(value.string, index), length;
        string_decode(value.string->data + begin, value.string->size - begin, &length);
        if (value.string->length != value.string->size && !jinja_work(jinja, begin))
            return false;
        return value_from_slice(jinja, string_slice(value.string, begin, begin + length), value.string->markup, item);
    }
    }
}

static bool next_of_sequence(struct jinja *jinja, struct jinja_iterator *iterator, struct value *item)
{
    struct value subject = iterator->subject;
    size_t count = subject.kind == VALUE_RANGE       ? subject.range->count
                   : subject.kind == VALUE_VIEW      ? subject.view->dict->count
                   : subject.kind == VALUE_DICT      ? subject.dict->count
                   : subject.kind == VALUE_UNDEFINED ? 0
                                                     : subject.list->count;
    if (iterator->position >= count) {
        *item = (struct value){0};
        return true;
    }
    return value_at(jinja, subject, iterator->position++, item);
}

static bool next_of_string(struct jinja *jinja, struct jinja_iterator *iterator, struct value *item)
{
    const struct jinja_string *string = iterator->subject.string;
    size_t begin = iterator->position, length;
    if (begin >= string->size) {
        *item = (struct value){0};
        return true;
    }
    string_decode(string->data + begin, string->size - begin, &length);
    iterator->position += length;
    // Elements of a Markup are plain strings: str.__iter__ is not overridden there.
    return value_from_slice(jinja, string_slice(string, begin, begin + length), false, item);
}

bool value_is_iterable(struct value value)
{
    switch (value.kind) {
    case VALUE_UNDEFINED: // has no elements
    case VALUE_STRING:
    case VALUE_LIST:
    case VALUE_TUPLE:
    case VALUE_DICT:
    case VALUE_VIEW:
    case VALUE_RANGE:
    case VALUE_ITERATOR:
    case VALUE_LOOP:
        return true;
    default:
        return false;
    }
}

bool iterator_open(struct jinja *jinja, struct value value, struct jinja_iterator **iterator)
{
    if (value.kind == VALUE_ITERATOR) {
        *iterator = value.iterator;
        return true;
    }
    if (!value_is_iterable(value) || value.kind == VALUE_LOOP)
        return jinja_fail(jinja, "'%s' object is not iterable", value_type_name(value));
    struct jinja_iterator *made = jinja_alloc(jinja, 1, sizeof *made);
    if (!made)
        return false;
    made->next = value.kind == VALUE_STRING ? next_of_string : next_of_sequence;
    made->subject = value;
    made->type_name = "iterator";
    *iterator = made;
    return true;
}

bool iterator_next(struct jinja *jinja, struct jinja_iterator *iterator, struct value *item)
{
    // An iterator may stand on another, and that on another …
    if (!jinja_step(jinja) || !jinja_enter(jinja))
        return false;
    bool done = iterator->next(jinja, iterator, item);
    jinja_leave(jinja);
    return done;
}

static bool next_of_nothing(struct jinja *jinja, struct jinja_iterator *iterator, struct value *item)
{
    (void)item;
    return jinja_fail(jinja, "'%s' object is not iterable", value_type_name(iterator->subject));
}

bool iterator_create(struct jinja *jinja, struct value over,
                     bool (*next)(struct jinja *, struct jinja_iterator *, struct value *), void *state,
                     const char *type_name, struct value *out)
{
    struct jinja_iterator *iterator = jinja_alloc(jinja, 1, sizeof *iterator);
    if (!iterator)
        return false;
    if (value_is_iterable(over) && over.kind != VALUE_LOOP) {
        if (!iterator_open(jinja, over, &iterator->source))
            return false;
    } else { // a generator fails when it is asked for its first element, not before
        iterator->source = jinja_alloc(jinja, 1, sizeof *iterator->source);
        if (!iterator->source)
            return false;
        iterator->source->next = next_of_nothing;
        iterator->source->subject = over;
    }
    iterator->next = next;
    iterator->state = state;
    iterator->type_name = type_name;
    *out = (struct value){.kind = VALUE_ITERATOR, .iterator = iterator};
    return true;
}

bool value_collect(struct jinja *jinja, struct value value, const struct jinja_list **list)
{
    if (value_is_list(value)) {
        *list = value.list;
        return true;
    }
    struct jinja_iterator *iterator = NULL;
    struct list_builder builder = {0};
    if (!iterator_open(jinja, value, &iterator))
        return false;
    for (;;) {
        struct value item;
        if (!iterator_next(jinja, iterator, &item))
            return false;
        if (item.kind == VALUE_ABSENT)
            break;
        if (!list_builder_add(jinja, &builder, item))
            return false;
    }
    *list = list_builder_finish(jinja, &builder);
    return *list != NULL;
}
