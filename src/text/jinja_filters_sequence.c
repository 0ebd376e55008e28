// Filters on sequences. Those that are generators in Python are lazy here too.
#include "text/jinja_filters.h"
#include "text/jinja_number.h"
#include "text/jinja_repr.h"
#include "text/jinja_sort.h"
#include "text/jinja_text.h"

#include <string.h>

bool filter_list(struct jinja *jinja, const struct call *call, struct value *out)
{
    const struct jinja_list *list;
    if (!value_collect(jinja, call->self, &list))
        return false;
    *out = value_list(list);
    return true;
}

bool filter_first(struct jinja *jinja, const struct call *call, struct value *out)
{
    struct jinja_iterator *iterator;
    if (!iterator_open(jinja, call->self, &iterator) || !iterator_next(jinja, iterator, out))
        return false;
    return out->kind != VALUE_ABSENT || value_undefined_text(jinja, "no first item, sequence was empty", out);
}

bool filter_last(struct jinja *jinja, const struct call *call, struct value *out)
{
    size_t length;
    if (call->self.kind == VALUE_ITERATOR)
        return jinja_fail(jinja, "'%s' object is not reversible", value_type_name(call->self));
    if (!value_length(jinja, call->self, &length))
        return false;
    if (length == 0)
        return value_undefined_text(jinja, "no last item, sequence was empty", out);
    return value_at(jinja, call->self, length - 1, out);
}

bool filter_random(struct jinja *jinja, const struct call *call, struct value *out)
{
    size_t length;
    if (!value_length(jinja, call->self, &length))
        return false;
    if (length == 0)
        return value_undefined_text(jinja, "no random item, sequence was empty", out);
    if (length == 1)
        return value_at(jinja, call->self, 0, out);
    return jinja_fail(jinja, "the filter random is not supported: a prompt must not depend on chance");
}

static bool next_reversed(struct jinja *jinja, struct jinja_iterator *iterator, struct value *item)
{
    size_t *left = iterator->state;
    *item = (struct value){0};
    return *left == 0 || value_at(jinja, iterator->source->subject, --*left, item);
}

bool filter_reverse(struct jinja *jinja, const struct call *call, struct value *out)
{
    struct value value = call->self;
    if (value.kind == VALUE_STRING) {
        const struct value parts[3] = {value_none(), value_none(), value_int(-1)};
        return value_slice(jinja, value, parts, out);
    }
    if (value.kind == VALUE_ITERATOR) { // cannot be walked backwards: a list
        const struct jinja_list *list;
        if (!value_collect(jinja, value, &list))
            return false;
        struct jinja_list *reversed = list_create(jinja, list->count);
        for (size_t i = 0; reversed && i < list->count; i++)
            reversed->items[i] = list->items[list->count - 1 - i];
        *out = value_list(reversed);
        return reversed != NULL;
    }
    if (!value_is_iterable(value) || value.kind == VALUE_LOOP)
        return jinja_fail(jinja, "argument must be iterable");
    size_t *left = jinja_alloc(jinja, 1, sizeof *left);
    return left && value_length(jinja, value, left) &&
           iterator_create(jinja, value, next_reversed, left, "list_reverseiterator", out);
}

struct batch_state {
    int64_t size;
    struct value fill;
    struct value pending; // taken, but of the next batch
    bool ended;
};

static bool next_batch(struct jinja *jinja, struct jinja_iterator *iterator, struct value *item)
{
    struct batch_state *state = iterator->state;
    struct list_builder batch = {0};
    struct value taken = state->pending;
    state->pending = (struct value){0};
    *item = (struct value){0};
    while (!state->ended) {
        if (taken.kind == VALUE_ABSENT && !iterator_next(jinja, iterator->source, &taken))
            return false;
        if (taken.kind == VALUE_ABSENT) {
            state->ended = true;
            break;
        }
        // A batch is given when an element comes that it has no room for: so one of size 0 comes first and is empty.
        if ((int64_t)batch.count == state->size) {
            state->pending = taken;
            if (state->size == 0)
                state->size = -1;
            *item = value_list(list_builder_finish(jinja, &batch));
            return item->list != NULL;
        }
        if (!list_builder_add(jinja, &batch, taken))
            return false;
        taken = (struct value){0};
    }
    if (batch.count == 0)
        return true;
    while (state->fill.kind != VALUE_ABSENT && state->fill.kind != VALUE_NONE && (int64_t)batch.count < state->size)
        if (!list_builder_add(jinja, &batch, state->fill))
            return false;
    *item = value_list(list_builder_finish(jinja, &batch));
    return item->list != NULL;
}

bool filter_batch(struct jinja *jinja, const struct call *call, struct value *out)
{
    struct batch_state *state = jinja_alloc(jinja, 1, sizeof *state);
    if (!state || !argument_int(jinja, call, 0, "linecount", 0, &state->size))
        return false;
    state->fill = call->arguments[1];
    return iterator_create(jinja, call->self, next_batch, state, "generator", out);
}

struct slice_state {
    const struct jinja_list *list; // NULL: not collected yet
    int64_t slices;
    int64_t number;
    struct value fill;
};

static bool next_slice(struct jinja *jinja, struct jinja_iterator *iterator, struct value *item)
{
    struct slice_state *state = iterator->state;
    struct value source = {.kind = VALUE_ITERATOR, .iterator = iterator->source};
    *item = (struct value){0};
    if (!state->list && !value_collect(jinja, source, &state->list))
        return false;
    if (state->slices == 0)
        return jinja_fail(jinja, "integer division or modulo by zero");
    if (state->number >= state->slices)
        return true;
    size_t slices = (size_t)state->slices, number = (size_t)state->number++;
    size_t size = state->list->count / slices, extra = state->list->count % slices;
    size_t begin = number * size + (number < extra ? number : extra), count = size + (number < extra);
    bool filled = state->fill.kind != VALUE_ABSENT && state->fill.kind != VALUE_NONE && number >= extra;
    struct jinja_list *part = list_create(jinja, count + filled);
    if (!part)
        return false;
    for (size_t i = 0; i < count; i++)
        part->items[i] = state->list->items[begin + i];
    if (filled)
        part->items[count] = state->fill;
    *item = value_list(part);
    return true;
}

bool filter_slice(struct jinja *jinja, const struct call *call, struct value *out)
{
    struct slice_state *state = jinja_alloc(jinja, 1, sizeof *state);
    if (!state || !argument_int(jinja, call, 0, "slices", 0, &state->slices))
        return false;
    state->fill = call->arguments[1];
    return iterator_create(jinja, call->self, next_slice, state, "generator", out);
}

struct unique_state {
    struct attribute_path path;
    struct jinja_dict *seen;
    bool case_sensitive;
};

static bool next_unique(struct jinja *jinja, struct jinja_iterator *iterator, struct value *item)
{
    struct unique_state *state = iterator->state;
    for (;;) {
        struct value key, found;
        if (!iterator_next(jinja, iterator->source, item))
            return false;
        if (item->kind == VALUE_ABSENT)
            return true;
        if (!attribute_key(jinja, &state->path, *item, state->case_sensitive, &key) ||
            !dict_get(jinja, state->seen, key, &found))
            return false;
        if (found.kind == VALUE_ABSENT)
            return dict_set(jinja, state->seen, key, value_bool(true));
    }
}

bool filter_unique(struct jinja *jinja, const struct call *call, struct value *out)
{
    struct unique_state *state = jinja_alloc(jinja, 1, sizeof *state);
    if (!state || !attribute_parse(jinja, call->arguments[1], &state->path))
        return false;
    state->seen = dict_create(jinja, 0);
    state->case_sensitive = argument_bool(call, 0, false);
    return state->seen && iterator_create(jinja, call->self, next_unique, state, "generator", out);
}

static bool next_item_pair(struct jinja *jinja, struct jinja_iterator *iterator, struct value *item)
{
    struct value *mapping = iterator->state;
    if (mapping->kind != VALUE_DICT && mapping->kind != VALUE_UNDEFINED)
        return jinja_fail(jinja, "Can only get item pairs from a mapping.");
    *item = (struct value){0};
    if (mapping->kind == VALUE_UNDEFINED || iterator->position >= mapping->dict->count)
        return true;
    const struct jinja_dict_entry *entry = &mapping->dict->entries[iterator->position++];
    return value_pair(jinja, entry->key, entry->value, item);
}

bool filter_items(struct jinja *jinja, const struct call *call, struct value *out)
{
    struct value *mapping = jinja_alloc(jinja, 1, sizeof *mapping);
    if (!mapping)
        return false;
    *mapping = call->self;
    // What it is applied to is looked at when the first pair is asked for.
    return iterator_create(jinja, value_undefined(), next_item_pair, mapping, "generator", out);
}

bool filter_join(struct jinja *jinja, const struct call *call, struct value *out)
{
    struct attribute_path path;
    struct jinja_writer writer = {.jinja = jinja};
    struct jinja_string *separator, *text;
    const struct jinja_list *list;
    struct value between = call->arguments[0], item;
    if (between.kind == VALUE_ABSENT && !value_from_literal(jinja, "", &between))
        return false;
    if (!attribute_parse(jinja, call->arguments[1], &path) || !value_to_string(jinja, between, &separator) ||
        !value_collect(jinja, call->self, &list))
        return false;
    struct jinja_list *items = list_create(jinja, list->count);
    if (!items)
        return false;
    writer.markup = jinja->autoescape && separator->markup;
    for (size_t i = 0; i < list->count; i++) {
        if (!attribute_get(jinja, &path, list->items[i], &item) || !value_to_string(jinja, item, &text))
            return false;
        items->items[i] = value_string(text);
        writer.markup |= jinja->autoescape && text->markup;
    }
    if (writer.markup && !(separator = string_escape(jinja, separator)))
        return false;
    for (size_t i = 0; i < items->count; i++) {
        text = writer.markup ? string_escape(jinja, items->items[i].string) : items->items[i].string;
        if (!text || (i && !writer_string(&writer, separator)) || !writer_string(&writer, text))
            return false;
    }
    return writer_finish_value(&writer, out);
}

// Paths separated by commas: the key is a list of what each finds.
static bool sort_key(struct jinja *jinja, const struct attribute_path *paths, size_t n_paths, struct value item,
                     bool case_sensitive, struct value *key)
{
    struct jinja_list *list = list_create(jinja, n_paths);
    for (size_t i = 0; list && i < n_paths; i++)
        if (!attribute_key(jinja, &paths[i], item, case_sensitive, &list->items[i]))
            return false;
    *key = value_list(list);
    return list != NULL;
}

bool filter_sort(struct jinja *jinja, const struct call *call, struct value *out)
{
    enum { MOST_PATHS = 8 };
    const struct jinja_list *list;
    struct value pieces;
    size_t n_paths = 1;
    bool case_sensitive = argument_bool(call, 1, false);
    struct attribute_path *paths = jinja_alloc(jinja, MOST_PATHS, sizeof *paths);
    if (!paths || !value_collect(jinja, call->self, &list))
        return false;
    if (call->arguments[2].kind == VALUE_STRING) {
        struct jinja_string *comma = string_literal(jinja, ",");
        if (!comma || !text_split(jinja, call->arguments[2].string, comma, -1, false, &pieces))
            return false;
        n_paths = pieces.list->count;
        if (n_paths > MOST_PATHS)
            return jinja_fail(jinja, "sort by more than %d attributes", MOST_PATHS);
        for (size_t i = 0; i < n_paths; i++)
            if (!attribute_parse(jinja, pieces.list->items[i], &paths[i]))
                return false;
    } else if (!attribute_parse(jinja, call->arguments[2], &paths[0])) {
        return false;
    }
    struct sort_item *items = jinja_alloc(jinja, list->count, sizeof *items);
    struct jinja_list *sorted = list_create(jinja, list->count);
    if (!items || !sorted)
        return false;
    for (size_t i = 0; i < list->count; i++) {
        items[i].value = list->items[i];
        if (!sort_key(jinja, paths, n_paths, list->items[i], case_sensitive, &items[i].key))
            return false;
    }
    if (!sort_items(jinja, items, list->count, argument_bool(call, 0, false)))
        return false;
    for (size_t i = 0; i < list->count; i++)
        sorted->items[i] = items[i].value;
    *out = value_list(sorted);
    return true;
}

bool filter_dictsort(struct jinja *jinja, const struct call *call, struct value *out)
{
    struct jinja_string *by;
    if (!argument_string(jinja, call, 1, "by", &by))
        return false;
    bool by_value = by && string_is(by, "value");
    if ((by && !by_value && !string_is(by, "key")) || call->arguments[1].kind == VALUE_NONE)
        return jinja_fail(jinja, "You can only sort by either \"key\" or \"value\"");
    if (call->self.kind == VALUE_UNDEFINED)
        return value_fail_undefined(jinja, call->self);
    if (call->self.kind != VALUE_DICT)
        return jinja_fail(jinja, "'%s' object has no items to sort", value_type_name(call->self));
    const struct jinja_dict *dict = call->self.dict;
    const struct attribute_path path = {0};
    struct sort_item *items = jinja_alloc(jinja, dict->count, sizeof *items);
    struct jinja_list *sorted = list_create(jinja, dict->count);
    if (!items || !sorted)
        return false;
    for (size_t i = 0; i < dict->count; i++) {
        const struct jinja_dict_entry *entry = &dict->entries[i];
        if (!value_pair(jinja, entry->key, entry->value, &items[i].value) ||
            !attribute_key(jinja, &path, by_value ? entry->value : entry->key, argument_bool(call, 0, false),
                           &items[i].key))
            return false;
    }
    if (!sort_items(jinja, items, dict->count, argument_bool(call, 2, false)))
        return false;
    for (size_t i = 0; i < dict->count; i++)
        sorted->items[i] = items[i].value;
    *out = value_list(sorted);
    return true;
}

static bool add_group(struct jinja *jinja, struct list_builder *groups, struct value grouper,
                      struct list_builder *members)
{
    struct jinja_list *pair = list_create(jinja, 2);
    if (!pair)
        return false;
    pair->group = true;
    pair->items[0] = grouper;
    pair->items[1] = value_list(list_builder_finish(jinja, members));
    *members = (struct list_builder){0};
    return pair->items[1].list && list_builder_add(jinja, groups, value_tuple(pair));
}

bool filter_groupby(struct jinja *jinja, const struct call *call, struct value *out)
{
    struct attribute_path path;
    const struct jinja_list *list;
    bool case_sensitive = argument_bool(call, 2, false);
    if (!attribute_parse(jinja, call->arguments[0], &path) || !value_collect(jinja, call->self, &list))
        return false;
    if (call->arguments[1].kind != VALUE_NONE)
        path.otherwise = call->arguments[1];
    struct sort_item *items = jinja_alloc(jinja, list->count, sizeof *items);
    if (!items)
        return false;
    for (size_t i = 0; i < list->count; i++) {
        items[i].value = list->items[i];
        if (!attribute_key(jinja, &path, list->items[i], case_sensitive, &items[i].key))
            return false;
    }
    if (!sort_items(jinja, items, list->count, false))
        return false;
    struct list_builder groups = {0}, members = {0};
    for (size_t i = 0; i < list->count; i++) {
        bool same = false;
        struct value grouper;
        if (!list_builder_add(jinja, &members, items[i].value))
            return false;
        if (i + 1 < list->count && !value_equal(jinja, items[i].key, items[i + 1].key, &same))
            return false;
        if (same)
            continue;
        if (!attribute_get(jinja, &path, members.items[0], &grouper) || !add_group(jinja, &groups, grouper, &members))
            return false;
    }
    *out = value_list(list_builder_finish(jinja, &groups));
    return out->list != NULL;
}
