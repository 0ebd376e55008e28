// striptags: text without comments and tags, white space collapsed, entities resolved.
#include "text/jinja_filters.h"
#include "text/jinja_repr.h"
#include "text/jinja_text.h"

#include <ctype.h>
#include <string.h>

// Everything but the parts that begin with `open` and end with `close`.
static bool remove_parts(struct jinja *jinja, struct jinja_string *text, const char *open, const char *close,
                         struct jinja_string **out)
{
    struct jinja_writer writer = {.jinja = jinja};
    struct slice opening = {open, strlen(open), NULL, false}, closing = {close, strlen(close), NULL, false};
    size_t done = 0;
    for (;;) {
        size_t begin = string_find(string_all(text), opening, done);
        size_t end = begin == SIZE_MAX ? SIZE_MAX : string_find(string_all(text), closing, begin);
        if (end == SIZE_MAX)
            break;
        if (!writer_slice(&writer, string_slice(text, done, begin)))
            return false;
        done = end + closing.size;
    }
    if (!writer_slice(&writer, string_slice(text, done, text->size)))
        return false;
    *out = writer_finish(&writer);
    return *out != NULL;
}

// The character that the entity at text (behind &) stands for, and where the entity ends; 0: none.
static uint32_t read_entity(const char *text, size_t size, size_t *end)
{
    static const struct {
        const char *name;
        uint32_t code_point;
    } named[] = {{"amp;", '&'},   {"lt;", '<'},    {"gt;", '>'},       {"quot;", '"'},     {"apos;", '\''},
                 {"nbsp;", 0xa0}, {"copy;", 0xa9}, {"mdash;", 0x2014}, {"ndash;", 0x2013}, {"hellip;", 0x2026}};
    for (size_t i = 0; i < sizeof named / sizeof named[0]; i++) {
        *end = strlen(named[i].name);
        if (size >= *end && memcmp(text, named[i].name, *end) == 0)
            return named[i].code_point;
    }
    if (size < 2 || text[0] != '#')
        return 0;
    bool hexadecimal = (text[1] | 32) == 'x';
    size_t at = hexadecimal ? 2 : 1, begin = at;
    uint32_t value = 0;
    for (; at < size && (hexadecimal ? isxdigit((unsigned char)text[at]) : isdigit((unsigned char)text[at])); at++) {
        uint32_t digit =
            isdigit((unsigned char)text[at]) ? (uint32_t)(text[at] - '0') : (uint32_t)((text[at] | 32) - 'a' + 10);
        value = value > 0x110000 ? value : value * (hexadecimal ? 16 : 10) + digit;
    }
    *end = at + (at < size && text[at] == ';');
    if (at == begin)
        return 0;
    return value == 0 || value > 0x10ffff || (value >= 0xd800 && value < 0xe000) ? 0xfffd : value;
}

static bool unescape(struct jinja *jinja, struct jinja_string *text, struct value *out)
{
    struct jinja_writer writer = {.jinja = jinja};
    for (size_t i = 0; i < text->size;) {
        const char *and = memchr(text->data + i, '&', text->size - i);
        size_t at = and? (size_t)(and-text->data) : text->size, end = 0;
        uint32_t c = and? read_entity(and+1, text->size - at - 1, &end) : 0;
        size_t plain = and&&!c ? at + 1 : at;
        if (!writer_slice(&writer, string_slice(text, i, plain)) || (c && !writer_code_point(&writer, c, false)))
            return false;
        i = c ? at + 1 + end : plain;
    }
    return writer_finish_value(&writer, out);
}

bool filter_striptags(struct jinja *jinja, const struct call *call, struct value *out)
{
    struct jinja_string *text;
    struct value words;
    struct jinja_writer writer = {.jinja = jinja};
    if (!value_to_string(jinja, call->self, &text) || !remove_parts(jinja, text, "<!--", "-->", &text) ||
        !remove_parts(jinja, text, "<", ">", &text) || !text_split(jinja, text, NULL, -1, false, &words))
        return false;
    for (size_t i = 0; i < words.list->count; i++)
        if ((i && !writer_text(&writer, " ")) || !writer_string(&writer, words.list->items[i].string))
            return false;
    text = writer_finish(&writer);
    return text && unescape(jinja, text, out);
}
