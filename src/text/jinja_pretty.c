// pprint: repr with sorted keys, broken into lines of at most 80 characters. Long texts are not broken.
#include "text/jinja_filters.h"
#include "text/jinja_repr.h"
#include "text/jinja_sort.h"

enum { PRETTY_WIDTH = 80 };

// A copy of value in which every dict is in the order of its keys.
static bool sort_keys(struct jinja *jinja, struct value value, struct value *out)
{
    *out = value;
    if (!value_is_list(value) && value.kind != VALUE_DICT)
        return true;
    if (!jinja_step(jinja) || !jinja_enter(jinja))
        return false;
    if (value.kind == VALUE_DICT) {
        const struct jinja_dict_entry *entries;
        struct jinja_dict *dict = dict_create(jinja, value.dict->count);
        if (!dict || !sort_entries(jinja, value.dict, &entries))
            return false;
        for (size_t i = 0; i < value.dict->count; i++) {
            struct value inner;
            if (!sort_keys(jinja, entries[i].value, &inner) || !dict_set(jinja, dict, entries[i].key, inner))
                return false;
        }
        *out = value_dict(dict);
    } else {
        struct jinja_list *list = list_create(jinja, value.list->count);
        for (size_t i = 0; list && i < list->count; i++)
            if (!sort_keys(jinja, value.list->items[i], &list->items[i]))
                return false;
        *out = value.kind == VALUE_LIST ? value_list(list) : value_tuple(list);
        if (!list)
            return false;
    }
    jinja_leave(jinja);
    return true;
}

static bool break_line(struct jinja_writer *writer, size_t indent)
{
    struct slice space = {" ", 1, NULL, false};
    return writer_text(writer, ",\n") && writer_repeat(writer, space, indent);
}

// after: characters that follow on the last line.
static bool write_pretty(struct jinja_writer *writer, struct value value, size_t indent, size_t after)
{
    struct jinja *jinja = writer->jinja;
    struct jinja_writer flat = {.jinja = jinja};
    if (!value_repr(&flat, value))
        return false;
    struct jinja_string *text = writer_finish(&flat);
    if (!text)
        return false;
    if ((!value_is_list(value) && value.kind != VALUE_DICT) || string_length(text) + indent + after <= PRETTY_WIDTH)
        return writer_string(writer, text);
    bool dict = value.kind == VALUE_DICT, tuple = value.kind == VALUE_TUPLE;
    size_t count = dict ? value.dict->count : value.list->count;
    const char *end = dict ? "}" : !tuple ? "]" : count == 1 ? ",)" : ")";
    if (!jinja_enter(jinja) || !writer_text(writer, dict ? "{" : tuple ? "(" : "["))
        return false;
    for (size_t i = 0; i < count; i++) {
        size_t inner = indent + 1, following = i + 1 < count ? 1 : after + (tuple && count == 1 ? 2 : 1);
        if (i && !break_line(writer, indent + 1))
            return false;
        if (dict) {
            struct jinja_writer key = {.jinja = jinja};
            if (!value_repr(&key, value.dict->entries[i].key) || !writer_text(&key, ": "))
                return false;
            struct jinja_string *shown = writer_finish(&key);
            if (!shown || !writer_string(writer, shown))
                return false;
            inner += string_length(shown);
        }
        if (!write_pretty(writer, dict ? value.dict->entries[i].value : value.list->items[i], inner, following))
            return false;
    }
    jinja_leave(jinja);
    return writer_text(writer, end);
}

bool filter_pprint(struct jinja *jinja, const struct call *call, struct value *out)
{
    struct jinja_writer writer = {.jinja = jinja};
    struct value sorted;
    return sort_keys(jinja, call->self, &sorted) && write_pretty(&writer, sorted, 0, 0) &&
           writer_finish_value(&writer, out);
}
