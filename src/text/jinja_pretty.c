// pprint: repr with sorted keys, broken into lines of at most 80 characters where that is possible.
#include "text/jinja_filters.h"
#include "text/jinja_repr.h"
#include "text/jinja_sort.h"
#include "text/jinja_text.h"
#include "text/jinja_unicode.h"

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

static bool shown_length(struct jinja *jinja, struct slice text, size_t *length)
{
    struct jinja_writer writer = {.jinja = jinja};
    if (!repr_text(&writer, text, false))
        return false;
    struct jinja_string *shown = writer_finish(&writer);
    *length = shown ? string_length(shown) : 0;
    return shown != NULL;
}

// The end of the word at `at` and of the white space behind it.
static size_t word_end(const struct jinja_string *text, size_t at)
{
    bool space = false;
    for (size_t length; at < text->size; at += length) {
        bool is_space = unicode_is_space(string_decode(text->data + at, text->size - at, &length));
        if (space && !is_space)
            break;
        space = is_space;
    }
    return at;
}

static bool add_piece(struct jinja *jinja, struct list_builder *pieces, struct slice piece)
{
    struct value value;
    return value_from_slice(jinja, piece, false, &value) && list_builder_add(jinja, pieces, value);
}

// Cuts a line between words into pieces that fit in `width`, the last one in `last_width`.
static bool cut_line(struct jinja *jinja, const struct jinja_string *line, size_t width, size_t last_width,
                     struct list_builder *pieces)
{
    size_t begin = 0;
    for (size_t at = 0, end; at < line->size; at = end) {
        size_t length;
        end = word_end(line, at);
        if (!jinja_step(jinja) || !shown_length(jinja, string_slice(line, begin, end), &length))
            return false;
        if (length <= (end == line->size ? last_width : width))
            continue;
        if (begin < at && !add_piece(jinja, pieces, string_slice(line, begin, at)))
            return false;
        begin = at;
    }
    return begin == line->size || add_piece(jinja, pieces, string_slice(line, begin, line->size));
}

// A text that is too long for its line is written as several, one below the other: its lines, and parts of these.
static bool write_long_text(struct jinja_writer *writer, const struct jinja_string *text, size_t indent, size_t after,
                            bool alone)
{
    struct jinja *jinja = writer->jinja;
    static const struct slice space = {" ", 1, NULL, false};
    struct list_builder pieces = {0};
    struct value lines;
    indent += alone;
    after += alone;
    size_t width = indent < PRETTY_WIDTH ? PRETTY_WIDTH - indent : 0, last_width = after < width ? width - after : 0;
    if (!text_split_lines(jinja, text, true, &lines))
        return false;
    for (size_t i = 0; i < lines.list->count; i++) {
        const struct jinja_string *line = lines.list->items[i].string;
        size_t length, room = i + 1 < lines.list->count ? width : last_width;
        if (!shown_length(jinja, string_all(line), &length))
            return false;
        if (!(length <= room ? add_piece(jinja, &pieces, string_all(line))
                             : cut_line(jinja, line, width, room, &pieces)))
            return false;
    }
    alone = alone && pieces.count > 1;
    if (alone && !writer_text(writer, "("))
        return false;
    for (size_t i = 0; i < pieces.count; i++)
        if ((i && (!writer_text(writer, "\n") || !writer_repeat(writer, space, indent))) ||
            !repr_text(writer, string_all(pieces.items[i].string), false))
            return false;
    return !alone || writer_text(writer, ")");
}

// after: characters that follow on the last line. alone: it is not inside of something else.
static bool write_pretty(struct jinja_writer *writer, struct value value, size_t indent, size_t after, bool alone)
{
    struct jinja *jinja = writer->jinja;
    struct jinja_writer flat = {.jinja = jinja};
    if (!value_repr(&flat, value))
        return false;
    struct jinja_string *text = writer_finish(&flat);
    if (!text)
        return false;
    bool breaks = value_is_list(value) || value.kind == VALUE_DICT || value.kind == VALUE_STRING;
    if (!breaks || string_length(text) + indent + after <= PRETTY_WIDTH)
        return writer_string(writer, text);
    if (value.kind == VALUE_STRING)
        return write_long_text(writer, value.string, indent, after, alone);
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
        if (!write_pretty(writer, dict ? value.dict->entries[i].value : value.list->items[i], inner, following, false))
            return false;
    }
    jinja_leave(jinja);
    return writer_text(writer, end);
}

bool filter_pprint(struct jinja *jinja, const struct call *call, struct value *out)
{
    struct jinja_writer writer = {.jinja = jinja};
    struct value sorted;
    return sort_keys(jinja, call->self, &sorted) && write_pretty(&writer, sorted, 0, 0, true) &&
           writer_finish_value(&writer, out);
}
