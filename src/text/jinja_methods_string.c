// Methods of strings, Python's semantics. Those of a Markup give Markup, and escape what they put in.
#include "text/jinja_format.h"
#include "text/jinja_methods.h"
#include "text/jinja_number.h"
#include "text/jinja_text.h"
#include "text/jinja_unicode.h"

#include <string.h>

static struct jinja_string *self(const struct call *call)
{
    return call->self.string;
}

// A string argument that must be there.
static bool text_argument(struct jinja *jinja, const struct call *call, size_t index, struct jinja_string **out)
{
    if (!argument_string(jinja, call, index, "an argument of a string's method", out))
        return false;
    if (!*out)
        return jinja_fail(jinja, "an argument of a string's method must be str, not None");
    return true;
}

static bool change_case(struct jinja *jinja, const struct call *call, enum text_case to, struct value *out)
{
    return text_change_case(jinja, self(call), to, out);
}

static bool method_lower(struct jinja *jinja, const struct call *call, struct value *out)
{
    return change_case(jinja, call, TEXT_LOWER, out);
}

static bool method_upper(struct jinja *jinja, const struct call *call, struct value *out)
{
    return change_case(jinja, call, TEXT_UPPER, out);
}

static bool method_title(struct jinja *jinja, const struct call *call, struct value *out)
{
    return change_case(jinja, call, TEXT_TITLE, out);
}

static bool method_capitalize(struct jinja *jinja, const struct call *call, struct value *out)
{
    return change_case(jinja, call, TEXT_CAPITALIZE, out);
}

static bool method_swapcase(struct jinja *jinja, const struct call *call, struct value *out)
{
    return change_case(jinja, call, TEXT_SWAP, out);
}

static bool method_casefold(struct jinja *jinja, const struct call *call, struct value *out)
{
    return change_case(jinja, call, TEXT_FOLD, out);
}

static bool strip(struct jinja *jinja, const struct call *call, bool left, bool right, struct value *out)
{
    struct jinja_string *characters;
    return argument_string(jinja, call, 0, "the characters to strip", &characters) &&
           text_strip(jinja, self(call), characters, left, right, out);
}

static bool method_strip(struct jinja *jinja, const struct call *call, struct value *out)
{
    return strip(jinja, call, true, true, out);
}

static bool method_lstrip(struct jinja *jinja, const struct call *call, struct value *out)
{
    return strip(jinja, call, true, false, out);
}

static bool method_rstrip(struct jinja *jinja, const struct call *call, struct value *out)
{
    return strip(jinja, call, false, true, out);
}

static bool split(struct jinja *jinja, const struct call *call, bool from_right, struct value *out)
{
    struct jinja_string *separator;
    int64_t most;
    return argument_string(jinja, call, 0, "sep", &separator) && argument_int(jinja, call, 1, "maxsplit", -1, &most) &&
           text_split(jinja, self(call), separator, most, from_right, out);
}

static bool method_split(struct jinja *jinja, const struct call *call, struct value *out)
{
    return split(jinja, call, false, out);
}

static bool method_rsplit(struct jinja *jinja, const struct call *call, struct value *out)
{
    return split(jinja, call, true, out);
}

static bool method_splitlines(struct jinja *jinja, const struct call *call, struct value *out)
{
    return text_split_lines(jinja, self(call), argument_bool(call, 0, false), out);
}

static bool method_replace(struct jinja *jinja, const struct call *call, struct value *out)
{
    struct jinja_string *old, *replacement;
    int64_t count;
    if (!text_argument(jinja, call, 0, &old) || !text_argument(jinja, call, 1, &replacement) ||
        !argument_int(jinja, call, 2, "count", -1, &count))
        return false;
    if (self(call)->markup)
        replacement = string_escape(jinja, replacement);
    return replacement && text_replace(jinja, self(call), old, replacement, count, out);
}

static bool method_join(struct jinja *jinja, const struct call *call, struct value *out)
{
    struct jinja_writer writer = {.jinja = jinja, .markup = self(call)->markup};
    const struct jinja_list *items;
    if (!value_collect(jinja, call->arguments[0], &items))
        return false;
    for (size_t i = 0; i < items->count; i++) {
        struct value item = items->items[i];
        if (item.kind != VALUE_STRING)
            return jinja_fail(jinja, "sequence item %zu: expected str instance, %s found", i, value_type_name(item));
        struct jinja_string *text = writer.markup ? string_escape(jinja, item.string) : item.string;
        if (!text || (i && !writer_string(&writer, self(call))) || !writer_string(&writer, text))
            return false;
    }
    return writer_finish_value(&writer, out);
}

// The bytes [begin, end) that the arguments start and end (positions of characters) leave; false where they are empty
// because they lie behind the text.
static bool bounds(struct jinja *jinja, const struct call *call, size_t *begin, size_t *end, bool *outside)
{
    struct jinja_string *string = self(call);
    if (call->arguments[1].kind == VALUE_ABSENT) {
        *begin = 0;
        *end = string->size;
        *outside = false;
        return true;
    }
    int64_t length = (int64_t)string_length(string), positions[2];
    for (size_t i = 0; i < 2; i++) {
        int64_t absent = i ? length : 0;
        bool none = call->arguments[i + 1].kind == VALUE_NONE;
        positions[i] = absent;
        if (!none && !argument_int(jinja, call, i + 1, "a position", absent, &positions[i]))
            return false;
        if (positions[i] < 0)
            positions[i] = positions[i] + length < 0 ? 0 : positions[i] + length;
    }
    positions[1] = positions[1] > length ? length : positions[1];
    *outside = positions[0] > positions[1];
    *begin = *outside ? 0 : string_offset(string, (size_t)positions[0]);
    *end = *outside ? 0 : string_offset(string, (size_t)positions[1]);
    return length == (int64_t)string->size || jinja_work(jinja, string->size);
}

// The byte offset of the first or last occurrence, or SIZE_MAX.
static bool find(struct jinja *jinja, const struct call *call, bool last, size_t *at)
{
    struct jinja_string *wanted;
    size_t begin, end;
    bool outside;
    *at = SIZE_MAX;
    if (!text_argument(jinja, call, 0, &wanted) || !bounds(jinja, call, &begin, &end, &outside))
        return false;
    if (outside)
        return true;
    struct slice text = string_slice(self(call), begin, end);
    if (!jinja_work(jinja, text.size))
        return false;
    if (!last)
        *at = string_find(text, string_all(wanted), 0);
    else if (!string_find_last(jinja, text, string_all(wanted), at))
        return false;
    *at = *at == SIZE_MAX ? SIZE_MAX : *at + begin;
    return true;
}

static bool find_position(struct jinja *jinja, const struct call *call, bool last, bool must, struct value *out)
{
    size_t at;
    if (!find(jinja, call, last, &at))
        return false;
    if (at == SIZE_MAX && must)
        return jinja_fail(jinja, "substring not found");
    *out = value_int(at == SIZE_MAX ? -1 : (int64_t)string_index(self(call), at));
    return true;
}

static bool method_find(struct jinja *jinja, const struct call *call, struct value *out)
{
    return find_position(jinja, call, false, false, out);
}

static bool method_rfind(struct jinja *jinja, const struct call *call, struct value *out)
{
    return find_position(jinja, call, true, false, out);
}

static bool method_index(struct jinja *jinja, const struct call *call, struct value *out)
{
    return find_position(jinja, call, false, true, out);
}

static bool method_rindex(struct jinja *jinja, const struct call *call, struct value *out)
{
    return find_position(jinja, call, true, true, out);
}

static bool method_count(struct jinja *jinja, const struct call *call, struct value *out)
{
    struct jinja_string *wanted;
    size_t begin, end;
    bool outside;
    int64_t count = 0;
    if (!text_argument(jinja, call, 0, &wanted) || !bounds(jinja, call, &begin, &end, &outside))
        return false;
    struct slice text = string_slice(self(call), begin, end);
    if (!jinja_work(jinja, text.size))
        return false;
    if (wanted->size == 0) {
        count = outside ? 0 : (int64_t)(string_index(self(call), end) - string_index(self(call), begin)) + 1;
    } else {
        for (size_t at = 0; (at = string_find(text, string_all(wanted), at)) != SIZE_MAX; at += wanted->size)
            count++;
    }
    *out = value_int(count);
    return true;
}

static bool has_affix(struct slice text, struct slice affix, bool at_end)
{
    if (affix.size > text.size)
        return false;
    const char *from = at_end ? text.data + text.size - affix.size : text.data;
    return affix.size == 0 || memcmp(from, affix.data, affix.size) == 0;
}

static bool test_affix(struct jinja *jinja, const struct call *call, bool at_end, struct value *out)
{
    struct value affixes = call->arguments[0];
    size_t begin, end;
    bool outside, holds = false;
    if (!bounds(jinja, call, &begin, &end, &outside))
        return false;
    struct slice text = string_slice(self(call), begin, end);
    size_t count = affixes.kind == VALUE_TUPLE ? affixes.list->count : 1;
    for (size_t i = 0; i < count; i++) {
        struct value affix = affixes.kind == VALUE_TUPLE ? affixes.list->items[i] : affixes;
        if (affix.kind == VALUE_UNDEFINED)
            return value_fail_undefined(jinja, affix);
        if (affix.kind != VALUE_STRING)
            return jinja_fail(jinja, "%s first arg must be str or a tuple of str, not %s",
                              at_end ? "endswith" : "startswith", value_type_name(affix));
        if (!jinja_work(jinja, affix.string->size))
            return false;
        holds |= !outside && has_affix(text, string_all(affix.string), at_end);
    }
    *out = value_bool(holds);
    return true;
}

static bool method_startswith(struct jinja *jinja, const struct call *call, struct value *out)
{
    return test_affix(jinja, call, false, out);
}

static bool method_endswith(struct jinja *jinja, const struct call *call, struct value *out)
{
    return test_affix(jinja, call, true, out);
}

static bool remove_affix(struct jinja *jinja, const struct call *call, bool at_end, struct value *out)
{
    struct jinja_string *affix;
    if (!text_argument(jinja, call, 0, &affix))
        return false;
    size_t begin = 0, end = self(call)->size;
    if (has_affix(string_all(self(call)), string_all(affix), at_end)) {
        begin += at_end ? 0 : affix->size;
        end -= at_end ? affix->size : 0;
    }
    return value_from_slice(jinja, string_slice(self(call), begin, end), self(call)->markup, out);
}

static bool method_removeprefix(struct jinja *jinja, const struct call *call, struct value *out)
{
    return remove_affix(jinja, call, false, out);
}

static bool method_removesuffix(struct jinja *jinja, const struct call *call, struct value *out)
{
    return remove_affix(jinja, call, true, out);
}

static bool partition(struct jinja *jinja, const struct call *call, bool last, struct value *out)
{
    struct jinja_string *separator, *string = self(call);
    size_t at;
    if (!text_argument(jinja, call, 0, &separator) || !find(jinja, call, last, &at))
        return false;
    if (separator->size == 0)
        return jinja_fail(jinja, "empty separator");
    struct jinja_list *parts = list_create(jinja, 3);
    if (!parts)
        return false;
    size_t begin = at == SIZE_MAX ? (last ? 0 : string->size) : at;
    size_t end = at == SIZE_MAX ? begin : at + separator->size;
    *out = value_tuple(parts);
    return value_from_slice(jinja, string_slice(string, 0, begin), string->markup, &parts->items[0]) &&
           value_from_slice(jinja, string_slice(string, begin, end), string->markup, &parts->items[1]) &&
           value_from_slice(jinja, string_slice(string, end, string->size), string->markup, &parts->items[2]);
}

static bool method_partition(struct jinja *jinja, const struct call *call, struct value *out)
{
    return partition(jinja, call, false, out);
}

static bool method_rpartition(struct jinja *jinja, const struct call *call, struct value *out)
{
    return partition(jinja, call, true, out);
}

static bool pad(struct jinja *jinja, const struct call *call, char align, struct value *out)
{
    struct jinja_string *fill;
    int64_t width;
    return argument_int(jinja, call, 0, "the width", 0, &width) &&
           argument_string(jinja, call, 1, "the fill character", &fill) &&
           text_pad(jinja, self(call), width, fill, align, out);
}

static bool method_center(struct jinja *jinja, const struct call *call, struct value *out)
{
    return pad(jinja, call, '^', out);
}

static bool method_ljust(struct jinja *jinja, const struct call *call, struct value *out)
{
    return pad(jinja, call, '<', out);
}

static bool method_rjust(struct jinja *jinja, const struct call *call, struct value *out)
{
    return pad(jinja, call, '>', out);
}

static bool method_zfill(struct jinja *jinja, const struct call *call, struct value *out)
{
    struct jinja_string *string = self(call);
    struct jinja_writer writer = {.jinja = jinja, .markup = string->markup};
    int64_t width, length = (int64_t)string_length(string);
    if (!argument_int(jinja, call, 0, "the width", 0, &width))
        return false;
    size_t sign = string->size && (string->data[0] == '-' || string->data[0] == '+');
    struct slice zero = {"0", 1, NULL, false};
    return writer_slice(&writer, string_slice(string, 0, sign)) &&
           writer_repeat(&writer, zero, width > length ? (size_t)(width - length) : 0) &&
           writer_slice(&writer, string_slice(string, sign, string->size)) && writer_finish_value(&writer, out);
}

static bool method_expandtabs(struct jinja *jinja, const struct call *call, struct value *out)
{
    struct jinja_string *string = self(call);
    struct jinja_writer writer = {.jinja = jinja, .markup = string->markup};
    struct slice space = {" ", 1, NULL, false};
    int64_t size, column = 0;
    if (!argument_int(jinja, call, 0, "the tab size", 8, &size))
        return false;
    for (size_t i = 0, length; i < string->size; i += length) {
        uint32_t c = string_decode(string->data + i, string->size - i, &length);
        int64_t missing = size > 0 ? size - column % size : 0;
        if (!(c == '\t' ? writer_repeat(&writer, space, (size_t)missing)
                        : writer_slice(&writer, string_slice(string, i, i + length))))
            return false;
        column = c == '\n' || c == '\r' ? 0 : c == '\t' ? column + missing : column + 1;
    }
    return writer_finish_value(&writer, out);
}

static bool method_format(struct jinja *jinja, const struct call *call, struct value *out)
{
    return format_braces(jinja, self(call), call->all, out);
}

static bool method_format_map(struct jinja *jinja, const struct call *call, struct value *out)
{
    struct value mapping = call->arguments[0];
    if (mapping.kind != VALUE_DICT)
        return jinja_fail(jinja, "format_map() needs a dict");
    struct binding *named = jinja_alloc(jinja, mapping.dict->count, sizeof *named);
    size_t count = 0;
    for (size_t i = 0; named && i < mapping.dict->count; i++)
        if (mapping.dict->entries[i].key.kind == VALUE_STRING)
            named[count++] = (struct binding){mapping.dict->entries[i].key.string, mapping.dict->entries[i].value};
    struct arguments arguments = {.named = named, .n_named = count};
    return named && format_braces(jinja, self(call), &arguments, out);
}

// Whether the string has characters, and all of them are of the class.
static bool all_are(const struct call *call, bool (*is)(uint32_t), struct value *out)
{
    const struct jinja_string *string = self(call);
    bool holds = string->size != 0;
    for (size_t i = 0, length; holds && i < string->size; i += length)
        holds = is(string_decode(string->data + i, string->size - i, &length));
    *out = value_bool(holds);
    return true;
}

static bool is_alnum(uint32_t c)
{
    return unicode_is_alpha(c) || unicode_is_numeric(c);
}

static bool method_isalnum(struct jinja *jinja, const struct call *call, struct value *out)
{
    return jinja_work(jinja, self(call)->size) && all_are(call, is_alnum, out);
}

static bool method_isalpha(struct jinja *jinja, const struct call *call, struct value *out)
{
    return jinja_work(jinja, self(call)->size) && all_are(call, unicode_is_alpha, out);
}

static bool method_isdecimal(struct jinja *jinja, const struct call *call, struct value *out)
{
    return jinja_work(jinja, self(call)->size) && all_are(call, unicode_is_decimal, out);
}

static bool method_isdigit(struct jinja *jinja, const struct call *call, struct value *out)
{
    return jinja_work(jinja, self(call)->size) && all_are(call, unicode_is_digit, out);
}

static bool method_isnumeric(struct jinja *jinja, const struct call *call, struct value *out)
{
    return jinja_work(jinja, self(call)->size) && all_are(call, unicode_is_numeric, out);
}

static bool method_isspace(struct jinja *jinja, const struct call *call, struct value *out)
{
    return jinja_work(jinja, self(call)->size) && all_are(call, unicode_is_space, out);
}

static bool method_isprintable(struct jinja *jinja, const struct call *call, struct value *out)
{
    if (!jinja_work(jinja, self(call)->size) || !all_are(call, unicode_is_printable, out))
        return false;
    out->boolean |= self(call)->size == 0;
    return true;
}

static bool is_ascii(uint32_t c)
{
    return c < 0x80;
}

static bool method_isascii(struct jinja *jinja, const struct call *call, struct value *out)
{
    if (!jinja_work(jinja, self(call)->size) || !all_are(call, is_ascii, out))
        return false;
    out->boolean |= self(call)->size == 0;
    return true;
}

static bool method_isidentifier(struct jinja *jinja, const struct call *call, struct value *out)
{
    const struct jinja_string *string = self(call);
    size_t length;
    if (!jinja_work(jinja, string->size) || !all_are(call, unicode_is_identifier_part, out))
        return false;
    out->boolean &= string->size && unicode_is_identifier_start(string_decode(string->data, string->size, &length));
    return true;
}

static bool method_isupper(struct jinja *jinja, const struct call *call, struct value *out)
{
    *out = value_bool(text_has_case(self(call), true));
    return jinja_work(jinja, self(call)->size);
}

static bool method_islower(struct jinja *jinja, const struct call *call, struct value *out)
{
    *out = value_bool(text_has_case(self(call), false));
    return jinja_work(jinja, self(call)->size);
}

static bool method_istitle(struct jinja *jinja, const struct call *call, struct value *out)
{
    const struct jinja_string *string = self(call);
    bool cased = false, previous = false, holds = true;
    for (size_t i = 0, length; i < string->size; i += length) {
        uint32_t c = string_decode(string->data + i, string->size - i, &length);
        bool begins = unicode_is_upper(c) || unicode_is_title(c), goes_on = !begins && unicode_is_lower(c);
        holds &= !(begins && previous) && !(goes_on && !previous);
        previous = begins || goes_on;
        cased |= previous;
    }
    *out = value_bool(holds && cased);
    return jinja_work(jinja, string->size);
}

static bool method_unsupported(struct jinja *jinja, const struct call *call, struct value *out)
{
    (void)call;
    (void)out;
    return jinja_fail(jinja, "this method of strings is not supported in chat templates");
}

#define POSITIONAL(method, required, ...)                                                                              \
    {                                                                                                                  \
        .name = #method, .function = method_##method, .parameters = {__VA_ARGS__}, .n_required = required,             \
        .positional_only = true                                                                                        \
    }
#define PLAIN(method)                                                                                                  \
    {                                                                                                                  \
        .name = #method, .function = method_##method                                                                   \
    }

const struct jinja_builtin string_methods[] = {
    PLAIN(capitalize),
    PLAIN(casefold),
    POSITIONAL(center, 1, "width", "fill"),
    POSITIONAL(count, 1, "sub", "start", "end"),
    {.name = "encode", .function = method_unsupported, .variadic = true},
    POSITIONAL(endswith, 1, "suffix", "start", "end"),
    {.name = "expandtabs", .function = method_expandtabs, .parameters = {"tabsize"}},
    POSITIONAL(find, 1, "sub", "start", "end"),
    {.name = "format", .function = method_format, .variadic = true},
    POSITIONAL(format_map, 1, "mapping"),
    POSITIONAL(index, 1, "sub", "start", "end"),
    PLAIN(isalnum),
    PLAIN(isalpha),
    PLAIN(isascii),
    PLAIN(isdecimal),
    PLAIN(isdigit),
    PLAIN(isidentifier),
    PLAIN(islower),
    PLAIN(isnumeric),
    PLAIN(isprintable),
    PLAIN(isspace),
    PLAIN(istitle),
    PLAIN(isupper),
    POSITIONAL(join, 1, "iterable"),
    POSITIONAL(ljust, 1, "width", "fill"),
    PLAIN(lower),
    POSITIONAL(lstrip, 0, "chars"),
    {.name = "maketrans", .function = method_unsupported, .variadic = true},
    POSITIONAL(partition, 1, "sep"),
    POSITIONAL(removeprefix, 1, "prefix"),
    POSITIONAL(removesuffix, 1, "suffix"),
    POSITIONAL(replace, 2, "old", "new", "count"),
    POSITIONAL(rfind, 1, "sub", "start", "end"),
    POSITIONAL(rindex, 1, "sub", "start", "end"),
    POSITIONAL(rjust, 1, "width", "fill"),
    POSITIONAL(rpartition, 1, "sep"),
    {.name = "rsplit", .function = method_rsplit, .parameters = {"sep", "maxsplit"}},
    POSITIONAL(rstrip, 0, "chars"),
    {.name = "split", .function = method_split, .parameters = {"sep", "maxsplit"}},
    {.name = "splitlines", .function = method_splitlines, .parameters = {"keepends"}},
    POSITIONAL(startswith, 1, "prefix", "start", "end"),
    POSITIONAL(strip, 0, "chars"),
    PLAIN(swapcase),
    PLAIN(title),
    {.name = "translate", .function = method_unsupported, .variadic = true},
    PLAIN(upper),
    POSITIONAL(zfill, 1, "width"),
    {0},
};
