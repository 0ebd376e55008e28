// Filters on text: case, padding, cutting, escaping.
#include "text/jinja_filters.h"
#include "text/jinja_format.h"
#include "text/jinja_json.h"
#include "text/jinja_number.h"
#include "text/jinja_repr.h"
#include "text/jinja_text.h"
#include "text/jinja_unicode.h"

#include <math.h>
#include <string.h>

static bool change_case(struct jinja *jinja, const struct call *call, enum text_case to, struct value *out)
{
    struct jinja_string *text;
    return value_to_string(jinja, call->self, &text) && text_change_case(jinja, text, to, out);
}

bool filter_lower(struct jinja *jinja, const struct call *call, struct value *out)
{
    return change_case(jinja, call, TEXT_LOWER, out);
}

bool filter_upper(struct jinja *jinja, const struct call *call, struct value *out)
{
    return change_case(jinja, call, TEXT_UPPER, out);
}

bool filter_capitalize(struct jinja *jinja, const struct call *call, struct value *out)
{
    return change_case(jinja, call, TEXT_CAPITALIZE, out);
}

// Unlike str.title, words begin only behind white space, hyphens and opening brackets: "they're" stays one word.
bool filter_title(struct jinja *jinja, const struct call *call, struct value *out)
{
    struct jinja_string *text;
    if (!value_to_string(jinja, call->self, &text))
        return false;
    struct jinja_writer writer = {.jinja = jinja};
    for (size_t begin = 0, end, length; begin < text->size; begin = end) {
        bool separates = false;
        for (end = begin; end < text->size; end += length) {
            uint32_t c = string_decode(text->data + end, text->size - end, &length);
            bool separator = unicode_is_space(c) || (c < 0x80 && strchr("-({[<", (int)c) && c);
            if (end == begin)
                separates = separator;
            else if (separator != separates)
                break;
        }
        string_decode(text->data + begin, text->size - begin, &length);
        if (separates ? !writer_slice(&writer, string_slice(text, begin, end))
                      : !text_write_case(&writer, string_slice(text, begin, begin + length), TEXT_UPPER) ||
                            !text_write_case(&writer, string_slice(text, begin + length, end), TEXT_LOWER))
            return false;
    }
    return writer_finish_value(&writer, out);
}

bool filter_string(struct jinja *jinja, const struct call *call, struct value *out)
{
    struct jinja_string *text;
    bool done = value_to_string(jinja, call->self, &text);
    *out = value_string(done ? text : NULL);
    return done;
}

bool filter_safe(struct jinja *jinja, const struct call *call, struct value *out)
{
    struct jinja_string *text;
    return value_to_string(jinja, call->self, &text) && value_from_slice(jinja, string_all(text), true, out);
}

bool filter_escape(struct jinja *jinja, const struct call *call, struct value *out)
{
    struct jinja_string *text;
    if (!value_to_string(jinja, call->self, &text))
        return false;
    *out = value_string(string_escape(jinja, text));
    return out->string != NULL;
}

bool filter_forceescape(struct jinja *jinja, const struct call *call, struct value *out)
{
    struct jinja_writer writer = {.jinja = jinja, .markup = true};
    struct jinja_string *text;
    return value_to_string(jinja, call->self, &text) && writer_escaped(&writer, string_all(text)) &&
           writer_finish_value(&writer, out);
}

bool filter_trim(struct jinja *jinja, const struct call *call, struct value *out)
{
    struct jinja_string *text, *characters;
    return value_to_string(jinja, call->self, &text) && argument_string(jinja, call, 0, "chars", &characters) &&
           text_strip(jinja, text, characters, true, true, out);
}

bool filter_center(struct jinja *jinja, const struct call *call, struct value *out)
{
    struct jinja_string *text;
    int64_t width;
    return value_to_string(jinja, call->self, &text) && argument_int(jinja, call, 0, "width", 80, &width) &&
           text_pad(jinja, text, width, NULL, '^', out);
}

bool filter_replace(struct jinja *jinja, const struct call *call, struct value *out)
{
    struct jinja_string *text, *old, *replacement;
    int64_t count = -1;
    if (!value_to_string(jinja, call->self, &text) || !value_to_string(jinja, call->arguments[0], &old) ||
        !value_to_string(jinja, call->arguments[1], &replacement))
        return false;
    if (call->arguments[2].kind != VALUE_NONE && !argument_int(jinja, call, 2, "count", -1, &count))
        return false;
    bool markup = jinja->autoescape && (text->markup || old->markup || replacement->markup);
    if (markup && (!(text = string_escape(jinja, text)) || !(old = string_escape(jinja, old)) ||
                   !(replacement = string_escape(jinja, replacement))))
        return false;
    if (!text_replace(jinja, text, old, replacement, count, out))
        return false;
    out->string->markup = markup;
    return true;
}

bool filter_format(struct jinja *jinja, const struct call *call, struct value *out)
{
    const struct arguments *all = call->all;
    struct jinja_string *text;
    if (all->count && all->n_named)
        return jinja_fail(jinja, "can't handle positional and keyword arguments at the same time");
    if (!value_to_string(jinja, call->self, &text))
        return false;
    if (all->n_named) {
        struct jinja_dict *named = dict_create(jinja, all->n_named);
        for (size_t i = 0; named && i < all->n_named; i++)
            if (!dict_set(jinja, named, value_string((struct jinja_string *)all->named[i].name), all->named[i].value))
                return false;
        return named && format_percent(jinja, text, value_dict(named), out);
    }
    struct jinja_list *list = list_create(jinja, all->count);
    if (!list)
        return false;
    for (size_t i = 0; i < all->count; i++)
        list->items[i] = all->positional[i];
    return format_percent(jinja, text, value_tuple(list), out);
}

// A string that a filter works on and that it does not make one.
static bool must_be_text(struct jinja *jinja, const struct call *call, struct jinja_string **text)
{
    if (call->self.kind == VALUE_UNDEFINED)
        return value_fail_undefined(jinja, call->self);
    if (call->self.kind != VALUE_STRING)
        return jinja_fail(jinja, "the filter needs str, not '%s'", value_type_name(call->self));
    *text = call->self.string;
    return true;
}

bool filter_indent(struct jinja *jinja, const struct call *call, struct value *out)
{
    static const struct slice space = {" ", 1, NULL, false};
    struct jinja_string *text = NULL, *indentation;
    struct jinja_writer unit = {.jinja = jinja}, writer = {.jinja = jinja};
    struct value lines;
    int64_t width = 4;
    bool first = argument_bool(call, 1, false), blank = argument_bool(call, 2, false);
    if (!must_be_text(jinja, call, &text))
        return false;
    if (call->arguments[0].kind == VALUE_STRING) {
        if (!writer_string(&unit, call->arguments[0].string))
            return false;
    } else if (!argument_int(jinja, call, 0, "width", 4, &width) ||
               !writer_repeat(&unit, space, width < 0 ? 0 : (size_t)width)) {
        return false;
    }
    writer.markup = text->markup;
    struct jinja_string *newline = string_literal(jinja, "\n");
    if (!newline || !(indentation = writer_finish(&unit)))
        return false;
    // A line break at the end counts as an empty line behind it.
    struct jinja_string *closed = string_concat(jinja, text, newline, 0);
    if (!closed || !text_split_lines(jinja, closed, false, &lines) || (first && !writer_string(&writer, indentation)))
        return false;
    for (size_t i = 0; i < lines.list->count; i++) {
        const struct jinja_string *line = lines.list->items[i].string;
        bool indents = i > 0 && (blank || line->size);
        if ((i && !writer_text(&writer, "\n")) || (indents && !writer_string(&writer, indentation)) ||
            !writer_string(&writer, line))
            return false;
    }
    return writer_finish_value(&writer, out);
}

bool filter_truncate(struct jinja *jinja, const struct call *call, struct value *out)
{
    struct jinja_string *text = NULL, *end;
    size_t length;
    struct value ending = call->arguments[2];
    int64_t most, leeway = 5;
    if (ending.kind == VALUE_ABSENT && !value_from_literal(jinja, "...", &ending))
        return false;
    if (!value_length(jinja, call->self, &length) || !argument_int(jinja, call, 0, "length", 255, &most) ||
        (call->arguments[3].kind != VALUE_NONE && !argument_int(jinja, call, 3, "leeway", 5, &leeway)) ||
        !value_to_string(jinja, ending, &end))
        return false;
    int64_t end_length = (int64_t)string_length(end);
    if (most < end_length || leeway < 0)
        return jinja_fail(jinja, "expected length >= %lld and leeway >= 0", (long long)end_length);
    *out = call->self; // also what is no text, as long as it has a length
    if (leeway > INT64_MAX - most || (int64_t)length <= most + leeway)
        return true;
    if (!must_be_text(jinja, call, &text))
        return false;
    size_t cut = string_offset(text, (size_t)(most - end_length));
    if (!argument_bool(call, 1, false)) {
        const char *blank = memrchr(text->data, ' ', cut);
        cut = blank ? (size_t)(blank - text->data) : cut;
    }
    struct jinja_writer writer = {.jinja = jinja, .markup = text->markup};
    return writer_slice(&writer, string_slice(text, 0, cut)) && writer_string(&writer, end) &&
           writer_finish_value(&writer, out);
}

bool filter_wordcount(struct jinja *jinja, const struct call *call, struct value *out)
{
    struct jinja_string *text;
    int64_t count = 0;
    bool inside = false;
    if (!value_to_string(jinja, call->self, &text) || !jinja_work(jinja, text->size))
        return false;
    for (size_t i = 0, length; i < text->size; i += length) {
        bool word = unicode_is_word(string_decode(text->data + i, text->size - i, &length));
        count += word && !inside;
        inside = word;
    }
    *out = value_int(count);
    return true;
}

bool filter_tojson(struct jinja *jinja, const struct call *call, struct value *out)
{
    static const struct slice space = {" ", 1, NULL, false};
    struct jinja_writer writer = {.jinja = jinja}, unit = {.jinja = jinja};
    struct json_layout layout = {.ascii = argument_bool(call, 0, false), .sorted = argument_bool(call, 3, false)};
    struct value indent = call->arguments[1], separators = call->arguments[2];
    if (indent.kind == VALUE_STRING) {
        layout.indent = indent.string;
    } else if (indent.kind != VALUE_ABSENT && indent.kind != VALUE_NONE) {
        int64_t width;
        if (!number_to_int64(jinja, indent, "indent", &width) ||
            !writer_repeat(&unit, space, width < 0 ? 0 : (size_t)width) || !(layout.indent = writer_finish(&unit)))
            return false;
    }
    if (separators.kind != VALUE_ABSENT && separators.kind != VALUE_NONE) {
        bool pair = value_is_list(separators) && separators.list->count == 2 &&
                    separators.list->items[0].kind == VALUE_STRING && separators.list->items[1].kind == VALUE_STRING;
        if (!pair)
            return jinja_fail(jinja, "separators must be a pair of str");
        layout.item_separator = separators.list->items[0].string;
        layout.key_separator = separators.list->items[1].string;
    }
    return json_write(&writer, call->self, &layout) && writer_finish_value(&writer, out);
}

bool filter_filesizeformat(struct jinja *jinja, const struct call *call, struct value *out)
{
    static const char letters[] = "kMGTPEZY";
    struct jinja_writer writer = {.jinja = jinja};
    bool binary = argument_bool(call, 0, false), valid = value_is_number(call->self);
    double bytes = 0, base = binary ? 1024 : 1000, unit;
    if (call->self.kind == VALUE_UNDEFINED)
        return value_fail_undefined(jinja, call->self);
    if (call->self.kind == VALUE_STRING && !number_parse_float(jinja, call->self.string, &bytes, &valid))
        return false;
    if (!valid)
        return jinja_fail(jinja, "the filter filesizeformat needs a number");
    if (call->self.kind != VALUE_STRING && !number_to_double(jinja, call->self, &bytes))
        return false;
    if (bytes == 1)
        return value_from_literal(jinja, "1 Byte", out);
    if (isnan(bytes))
        return jinja_fail(jinja, "cannot convert float NaN to integer");
    if (bytes < base && isinf(bytes))
        return jinja_fail(jinja, "cannot convert float infinity to integer");
    if (bytes < base) {
        // Towards 0, as int() does; %.0f would round.
        return number_write_formatted(&writer, trunc(bytes) + 0.0, 'f', 0, false) && writer_text(&writer, " Bytes") &&
               writer_finish_value(&writer, out);
    }
    size_t i = 0;
    for (unit = base * base; i < sizeof letters - 2 && bytes >= unit; i++)
        unit *= base;
    char prefix = binary && i == 0 ? 'K' : letters[i];
    return number_write_formatted(&writer, base * bytes / unit, 'f', 1, false) &&
           writer_format(&writer, binary ? " %ciB" : " %cB", prefix) && writer_finish_value(&writer, out);
}

static bool quote_url(struct jinja_writer *writer, struct value value, bool query)
{
    struct jinja_string *text;
    if (!value_to_string(writer->jinja, value, &text))
        return false;
    for (size_t i = 0; i < text->size; i++) {
        unsigned char c = (unsigned char)text->data[i];
        bool plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                     (c && strchr("_.-~", c)) || (c == '/' && !query);
        if (!(plain               ? writer_slice(writer, string_slice(text, i, i + 1))
              : query && c == ' ' ? writer_text(writer, "+")
                                  : writer_format(writer, "%%%02X", c)))
            return false;
    }
    return true;
}

bool filter_urlencode(struct jinja *jinja, const struct call *call, struct value *out)
{
    struct jinja_writer writer = {.jinja = jinja};
    struct value subject = call->self;
    const struct jinja_list *pairs;
    if (subject.kind == VALUE_STRING || !value_is_iterable(subject))
        return quote_url(&writer, subject, false) && writer_finish_value(&writer, out);
    struct jinja_view items = {subject.kind == VALUE_DICT ? subject.dict : NULL, VIEW_ITEMS};
    if (subject.kind == VALUE_DICT)
        subject = (struct value){.kind = VALUE_VIEW, .view = &items};
    if (!value_collect(jinja, subject, &pairs))
        return false;
    for (size_t i = 0; i < pairs->count; i++) {
        const struct jinja_list *pair;
        if (!value_collect(jinja, pairs->items[i], &pair))
            return false;
        if (pair->count != 2)
            return jinja_fail(jinja, "urlencode needs pairs of two");
        if ((i && !writer_text(&writer, "&")) || !quote_url(&writer, pair->items[0], true) ||
            !writer_text(&writer, "=") || !quote_url(&writer, pair->items[1], true))
            return false;
    }
    return writer_finish_value(&writer, out);
}

bool filter_urlize(struct jinja *jinja, const struct call *call, struct value *out)
{
    (void)call;
    (void)out;
    return jinja_fail(jinja, "the filter urlize is not supported: a prompt is not HTML");
}

bool filter_xmlattr(struct jinja *jinja, const struct call *call, struct value *out)
{
    struct jinja_writer writer = {.jinja = jinja, .markup = jinja->autoescape};
    bool autospace = argument_bool(call, 0, true), first = true;
    if (call->self.kind == VALUE_UNDEFINED)
        return value_fail_undefined(jinja, call->self);
    if (call->self.kind != VALUE_DICT)
        return jinja_fail(jinja, "xmlattr needs a dict, not '%s'", value_type_name(call->self));
    for (size_t i = 0; i < call->self.dict->count; i++) {
        const struct jinja_dict_entry *entry = &call->self.dict->entries[i];
        struct jinja_string *key, *value;
        if (entry->value.kind == VALUE_NONE || entry->value.kind == VALUE_UNDEFINED)
            continue;
        if (!value_to_string(jinja, entry->key, &key) || !value_to_string(jinja, entry->value, &value))
            return false;
        for (size_t k = 0, length; k < key->size; k += length) {
            uint32_t c = string_decode(key->data + k, key->size - k, &length);
            if (unicode_is_space(c) || c == '/' || c == '>' || c == '=')
                return jinja_fail(jinja, "invalid character in attribute name");
        }
        if (!(key = string_escape(jinja, key)) || !(value = string_escape(jinja, value)))
            return false;
        if (((!first || autospace) && !writer_text(&writer, " ")) || !writer_string(&writer, key) ||
            !writer_text(&writer, "=\"") || !writer_string(&writer, value) || !writer_text(&writer, "\""))
            return false;
        first = false;
    }
    return writer_finish_value(&writer, out);
}
