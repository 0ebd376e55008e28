// The table of filters with their parameters as Jinja names them, and what an `attribute` argument means.
#include "text/jinja_filters.h"

#include "text/jinja_text.h"

#include <ctype.h>
#include <string.h>

static const struct jinja_builtin filters[] = {
    {.name = "abs", .function = filter_abs},
    {.name = "attr", .function = filter_attr, .parameters = {"name"}, .n_required = 1},
    {.name = "batch", .function = filter_batch, .parameters = {"linecount", "fill_with"}, .n_required = 1},
    {.name = "capitalize", .function = filter_capitalize},
    {.name = "center", .function = filter_center, .parameters = {"width"}},
    {.name = "count", .function = filter_length},
    {.name = "d", .function = filter_default, .parameters = {"default_value", "boolean"}},
    {.name = "default", .function = filter_default, .parameters = {"default_value", "boolean"}},
    {.name = "dictsort", .function = filter_dictsort, .parameters = {"case_sensitive", "by", "reverse"}},
    {.name = "e", .function = filter_escape},
    {.name = "escape", .function = filter_escape},
    {.name = "filesizeformat", .function = filter_filesizeformat, .parameters = {"binary"}},
    {.name = "first", .function = filter_first},
    {.name = "float", .function = filter_float, .parameters = {"default"}},
    {.name = "forceescape", .function = filter_forceescape},
    {.name = "format", .function = filter_format, .variadic = true},
    {.name = "groupby",
     .function = filter_groupby,
     .parameters = {"attribute", "default", "case_sensitive"},
     .n_required = 1},
    {.name = "indent", .function = filter_indent, .parameters = {"width", "first", "blank"}},
    {.name = "int", .function = filter_int, .parameters = {"default", "base"}},
    {.name = "items", .function = filter_items},
    {.name = "join", .function = filter_join, .parameters = {"d", "attribute"}},
    {.name = "last", .function = filter_last},
    {.name = "length", .function = filter_length},
    {.name = "list", .function = filter_list},
    {.name = "lower", .function = filter_lower},
    {.name = "map", .function = filter_map, .variadic = true},
    {.name = "max", .function = filter_max, .parameters = {"case_sensitive", "attribute"}},
    {.name = "min", .function = filter_min, .parameters = {"case_sensitive", "attribute"}},
    {.name = "pprint", .function = filter_pprint},
    {.name = "random", .function = filter_random},
    {.name = "reject", .function = filter_reject, .variadic = true},
    {.name = "rejectattr", .function = filter_rejectattr, .variadic = true},
    {.name = "replace", .function = filter_replace, .parameters = {"old", "new", "count"}, .n_required = 2},
    {.name = "reverse", .function = filter_reverse},
    {.name = "round", .function = filter_round, .parameters = {"precision", "method"}},
    {.name = "safe", .function = filter_safe},
    {.name = "select", .function = filter_select, .variadic = true},
    {.name = "selectattr", .function = filter_selectattr, .variadic = true},
    {.name = "slice", .function = filter_slice, .parameters = {"slices", "fill_with"}, .n_required = 1},
    {.name = "sort", .function = filter_sort, .parameters = {"reverse", "case_sensitive", "attribute"}},
    {.name = "string", .function = filter_string},
    {.name = "striptags", .function = filter_striptags},
    {.name = "sum", .function = filter_sum, .parameters = {"attribute", "start"}},
    {.name = "title", .function = filter_title},
    {.name = "tojson", .function = filter_tojson, .parameters = {"ensure_ascii", "indent", "separators", "sort_keys"}},
    {.name = "trim", .function = filter_trim, .parameters = {"chars"}},
    {.name = "truncate", .function = filter_truncate, .parameters = {"length", "killwords", "end", "leeway"}},
    {.name = "unique", .function = filter_unique, .parameters = {"case_sensitive", "attribute"}},
    {.name = "upper", .function = filter_upper},
    {.name = "urlencode", .function = filter_urlencode},
    {.name = "urlize", .function = filter_urlize, .variadic = true},
    {.name = "wordcount", .function = filter_wordcount},
    {.name = "wordwrap",
     .function = filter_wordwrap,
     .parameters = {"width", "break_long_words", "wrapstring", "break_on_hyphens"}},
    {.name = "xmlattr", .function = filter_xmlattr, .parameters = {"autospace"}},
    {0},
};

const struct jinja_builtin *filter_find(const struct jinja_string *name)
{
    return builtin_find(filters, name);
}

bool attribute_parse(struct jinja *jinja, struct value attribute, struct attribute_path *path)
{
    *path = (struct attribute_path){0};
    if (attribute.kind == VALUE_ABSENT || attribute.kind == VALUE_NONE)
        return true;
    if (attribute.kind != VALUE_STRING) {
        path->parts[path->count++] = attribute;
        return true;
    }
    struct jinja_string *text = attribute.string;
    for (size_t begin = 0; begin <= text->size;) {
        const char *dot = text->size > begin ? memchr(text->data + begin, '.', text->size - begin) : NULL;
        size_t end = dot ? (size_t)(dot - text->data) : text->size;
        if (path->count == sizeof path->parts / sizeof path->parts[0])
            return jinja_fail(jinja, "an attribute path has too many parts");
        struct value *part = &path->parts[path->count++];
        int64_t index = 0;
        bool number = end > begin && end - begin < 19;
        for (size_t i = begin; number && i < end; i++) {
            number = isdigit((unsigned char)text->data[i]);
            index = index * 10 + (text->data[i] - '0');
        }
        if (number)
            *part = value_int(index);
        else if (!value_from_slice(jinja, string_slice(text, begin, end), false, part))
            return false;
        begin = end + 1;
    }
    return true;
}

bool attribute_get(struct jinja *jinja, const struct attribute_path *path, struct value item, struct value *out)
{
    for (size_t i = 0; i < path->count; i++) {
        if (!value_item(jinja, item, path->parts[i], &item))
            return false;
        if (item.kind == VALUE_UNDEFINED && path->otherwise.kind != VALUE_ABSENT)
            item = path->otherwise;
    }
    *out = item;
    return true;
}

bool attribute_key(struct jinja *jinja, const struct attribute_path *path, struct value item, bool case_sensitive,
                   struct value *out)
{
    if (!attribute_get(jinja, path, item, out))
        return false;
    return case_sensitive || out->kind != VALUE_STRING || text_change_case(jinja, out->string, TEXT_LOWER, out);
}
