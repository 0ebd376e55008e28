// See jinja_repr.h.
#include "text/jinja_repr.h"

#include "text/jinja_iterate.h"
#include "text/jinja_number.h"
#include "text/jinja_run.h"
#include "text/jinja_unicode.h"

#include <string.h>

static bool escape_code_point(struct jinja_writer *writer, uint32_t code_point)
{
    const char *format = code_point < 0x100 ? "\\x%02x" : code_point < 0x10000 ? "\\u%04x" : "\\U%08x";
    return code_point == '\n'   ? writer_text(writer, "\\n")
           : code_point == '\r' ? writer_text(writer, "\\r")
           : code_point == '\t' ? writer_text(writer, "\\t")
                                : writer_format(writer, format, (unsigned)code_point);
}

bool repr_text(struct jinja_writer *writer, struct slice slice, bool ascii)
{
    bool single = slice.size && memchr(slice.data, '\'', slice.size);
    bool both = single && memchr(slice.data, '"', slice.size);
    char quote = single && !both ? '"' : '\'';
    if (!writer_bytes(writer, &quote, 1, false))
        return false;
    size_t done = 0;
    for (size_t i = 0, length; i < slice.size; i += length) {
        uint32_t code_point = string_decode(slice.data + i, slice.size - i, &length);
        bool backslash = code_point == '\\' || code_point == (unsigned char)quote;
        if (!backslash && unicode_is_printable(code_point) && (!ascii || code_point < 0x80))
            continue;
        struct slice plain = {slice.data + done, i - done, slice.shadow ? slice.shadow + done : NULL, slice.trusted};
        if (!writer_slice(writer, plain))
            return false;
        done = i + length;
        if (backslash) {
            if (!writer_text(writer, "\\") || !writer_bytes(writer, slice.data + i, 1, false))
                return false;
        } else if (!escape_code_point(writer, code_point)) {
            return false;
        }
    }
    struct slice rest = {slice.data + done, slice.size - done, slice.shadow ? slice.shadow + done : NULL,
                         slice.trusted};
    return writer_slice(writer, rest) && writer_bytes(writer, &quote, 1, false);
}

static bool repr_list(struct jinja_writer *writer, const struct jinja_list *list, bool tuple)
{
    if (!writer_text(writer, tuple ? "(" : "["))
        return false;
    for (size_t i = 0; i < list->count; i++)
        if ((i && !writer_text(writer, ", ")) || !value_repr(writer, list->items[i]))
            return false;
    return writer_text(writer, tuple ? (list->count == 1 ? ",)" : ")") : "]");
}

static bool repr_dict(struct jinja_writer *writer, const struct jinja_dict *dict)
{
    if (!writer_text(writer, "{"))
        return false;
    for (size_t i = 0; i < dict->count; i++) {
        if ((i && !writer_text(writer, ", ")) || !value_repr(writer, dict->entries[i].key) ||
            !writer_text(writer, ": ") || !value_repr(writer, dict->entries[i].value))
            return false;
    }
    return writer_text(writer, "}");
}

static bool repr_view(struct jinja_writer *writer, struct value value)
{
    if (!writer_format(writer, "%s([", value_type_name(value)))
        return false;
    for (size_t i = 0; i < value.view->dict->count; i++) {
        struct value item;
        if ((i && !writer_text(writer, ", ")) || !value_at(writer->jinja, value, i, &item) || !value_repr(writer, item))
            return false;
    }
    return writer_text(writer, "])");
}

static bool repr_range(struct jinja_writer *writer, const struct jinja_range *range)
{
    if (range->step == 1)
        return writer_format(writer, "range(%lld, %lld)", (long long)range->start, (long long)range->stop);
    return writer_format(writer, "range(%lld, %lld, %lld)", (long long)range->start, (long long)range->stop,
                         (long long)range->step);
}

static bool repr_macro(struct jinja_writer *writer, const struct jinja_macro *macro)
{
    const struct jinja_string *name = macro_name(macro);
    if (!name)
        return writer_text(writer, "<Macro anonymous>");
    return writer_text(writer, "<Macro ") && repr_text(writer, string_all(name), false) && writer_text(writer, ">");
}

static bool repr_inside(struct jinja_writer *writer, struct value value)
{
    switch (value.kind) {
    case VALUE_UNDEFINED:
        return writer_text(writer, "Undefined");
    case VALUE_NONE:
        return writer_text(writer, "None");
    case VALUE_BOOL:
        return writer_text(writer, value.boolean ? "True" : "False");
    case VALUE_INT:
    case VALUE_BIG:
        return number_write_int(writer, value);
    case VALUE_FLOAT:
        return number_write_float(writer, value.real);
    case VALUE_STRING:
        if (!value.string->markup)
            return repr_text(writer, string_all(value.string), false);
        return writer_text(writer, "Markup(") && repr_text(writer, string_all(value.string), false) &&
               writer_text(writer, ")");
    case VALUE_LIST:
    case VALUE_TUPLE:
        return repr_list(writer, value.list, value.kind == VALUE_TUPLE);
    case VALUE_DICT:
        return repr_dict(writer, value.dict);
    case VALUE_VIEW:
        return repr_view(writer, value);
    case VALUE_RANGE:
        return repr_range(writer, value.range);
    case VALUE_NAMESPACE:
        return writer_text(writer, "<Namespace ") && repr_dict(writer, value.namespace) && writer_text(writer, ">");
    case VALUE_MACRO:
        return repr_macro(writer, value.macro);
    case VALUE_LOOP:
        return loop_repr(writer, value.loop);
    default:
        return writer_format(writer, "<%s object>", value_type_name(value));
    }
}

bool value_repr(struct jinja_writer *writer, struct value value)
{
    if (!jinja_step(writer->jinja) || !jinja_enter(writer->jinja))
        return false;
    bool done = repr_inside(writer, value);
    jinja_leave(writer->jinja);
    return done;
}

bool value_write(struct jinja_writer *writer, struct value value)
{
    if (value.kind == VALUE_STRING)
        return writer_string(writer, value.string);
    return value.kind == VALUE_UNDEFINED || value_repr(writer, value);
}

bool value_to_string(struct jinja *jinja, struct value value, struct jinja_string **string)
{
    if (value.kind == VALUE_STRING) {
        *string = value.string;
        return true;
    }
    struct jinja_writer writer = {.jinja = jinja};
    if (!value_write(&writer, value))
        return false;
    *string = writer_finish(&writer);
    return *string != NULL;
}
