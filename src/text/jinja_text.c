// See jinja_text.h.
#include "text/jinja_text.h"

#include "text/jinja_unicode.h"

#include <string.h>

static struct slice part(struct slice text, size_t begin, size_t end)
{
    return (struct slice){text.data + begin, end - begin, text.shadow ? text.shadow + begin : NULL, text.trusted};
}

// Whether a capital sigma at [at, at + length) ends a word, where its small form is another letter.
static bool ends_word(struct slice text, size_t at, size_t length)
{
    size_t size;
    bool cased = false;
    for (size_t i = at; i > 0 && !cased; i -= size) {
        uint32_t c = string_decode_before(text.data, i, &size);
        cased = unicode_is_cased(c) && !unicode_is_case_ignorable(c);
        if (!cased && !unicode_is_case_ignorable(c))
            return false;
    }
    for (size_t i = at + length; cased && i < text.size; i += size) {
        uint32_t c = string_decode(text.data + i, text.size - i, &size);
        if (unicode_is_case_ignorable(c))
            continue;
        return !unicode_is_cased(c);
    }
    return cased;
}

bool text_write_case(struct jinja_writer *writer, struct slice text, enum text_case to)
{
    enum { CAPITAL_SIGMA = 0x3a3, FINAL_SIGMA = 0x3c2 };
    bool inside_word = false; // of TITLE: behind a letter; of CAPITALIZE: not at the very beginning
    size_t length;
    if (!writer_reserve(writer, text.size))
        return false;
    for (size_t i = 0; i < text.size; i += length) {
        uint32_t c = string_decode(text.data + i, text.size - i, &length), mapped[3];
        enum unicode_case wanted = to == TEXT_UPPER ? CASE_UPPER : CASE_LOWER;
        if ((to == TEXT_TITLE || to == TEXT_CAPITALIZE) && !inside_word)
            wanted = CASE_TITLE;
        if (to == TEXT_SWAP)
            wanted = unicode_is_lower(c) ? CASE_UPPER : unicode_is_upper(c) ? CASE_LOWER : CASE_SAME;
        if (to == TEXT_FOLD)
            wanted = CASE_FOLD;
        inside_word = to == TEXT_CAPITALIZE || unicode_is_cased(c);
        size_t n = unicode_map_case(c, wanted, mapped);
        if (c == CAPITAL_SIGMA && wanted == CASE_LOWER && ends_word(text, i, length))
            mapped[0] = FINAL_SIGMA;
        bool trusted = text.shadow ? text.shadow[i] : text.trusted;
        for (size_t k = 0; k < n; k++)
            if (!writer_code_point(writer, mapped[k], trusted))
                return false;
    }
    return true;
}

bool text_change_case(struct jinja *jinja, const struct jinja_string *string, enum text_case to, struct value *out)
{
    struct jinja_writer writer = {.jinja = jinja, .markup = string->markup};
    return text_write_case(&writer, string_all(string), to) && writer_finish_value(&writer, out);
}

bool text_has_case(const struct jinja_string *string, bool upper)
{
    bool cased = false;
    for (size_t i = 0, length; i < string->size; i += length) {
        uint32_t c = string_decode(string->data + i, string->size - i, &length);
        if (unicode_is_title(c) || (upper ? unicode_is_lower(c) : unicode_is_upper(c)))
            return false;
        cased |= upper ? unicode_is_upper(c) : unicode_is_lower(c);
    }
    return cased;
}

bool text_replace(struct jinja *jinja, struct jinja_string *string, struct jinja_string *old,
                  struct jinja_string *replacement, int64_t count, struct value *out)
{
    struct jinja_writer writer = {.jinja = jinja, .markup = string->markup};
    struct slice text = string_all(string), wanted = string_all(old);
    size_t done = 0;
    if (!jinja_work(jinja, text.size))
        return false;
    for (size_t from = 0; count != 0; count--) {
        size_t at = string_find(text, wanted, from);
        if (at == SIZE_MAX)
            break;
        if (!writer_slice(&writer, part(text, done, at)) || !writer_string(&writer, replacement))
            return false;
        done = at + wanted.size;
        from = done;
        if (wanted.size == 0) { // between all characters
            size_t length;
            if (at == text.size)
                break;
            string_decode(text.data + at, text.size - at, &length);
            from = at + length;
        }
    }
    return writer_slice(&writer, part(text, done, text.size)) && writer_finish_value(&writer, out);
}

static bool add_piece(struct jinja *jinja, struct list_builder *pieces, struct slice piece, bool markup)
{
    struct value value;
    return jinja_step(jinja) && value_from_slice(jinja, piece, markup, &value) &&
           list_builder_add(jinja, pieces, value);
}

static bool finish_pieces(struct jinja *jinja, struct list_builder *pieces, bool reversed, struct value *out)
{
    for (size_t i = 0; reversed && i < pieces->count / 2; i++) {
        struct value swapped = pieces->items[i];
        pieces->items[i] = pieces->items[pieces->count - 1 - i];
        pieces->items[pieces->count - 1 - i] = swapped;
    }
    *out = value_list(list_builder_finish(jinja, pieces));
    return out->list != NULL;
}

static bool split_at_separator(struct jinja *jinja, struct slice text, bool markup, struct slice separator,
                               int64_t most, bool from_right, struct list_builder *pieces)
{
    if (separator.size == 0)
        return jinja_fail(jinja, "empty separator");
    while (most-- != 0) {
        size_t at;
        if (!from_right)
            at = string_find(text, separator, 0);
        else if (!string_find_last(jinja, text, separator, &at))
            return false;
        if (at == SIZE_MAX)
            break;
        size_t behind = at + separator.size;
        struct slice piece = from_right ? part(text, behind, text.size) : part(text, 0, at);
        if (!add_piece(jinja, pieces, piece, markup))
            return false;
        text = from_right ? part(text, 0, at) : part(text, behind, text.size);
    }
    return add_piece(jinja, pieces, text, markup);
}

// The end of the run of characters at one end of text that are (or are not) white space, as an offset.
static size_t run_end(struct slice text, bool space, bool from_right)
{
    size_t length, at = from_right ? text.size : 0;
    while (from_right ? at > 0 : at < text.size) {
        uint32_t c = from_right ? string_decode_before(text.data, at, &length)
                                : string_decode(text.data + at, text.size - at, &length);
        if (unicode_is_space(c) != space)
            break;
        at = from_right ? at - length : at + length;
    }
    return at;
}

static bool split_at_space(struct jinja *jinja, struct slice text, bool markup, int64_t most, bool from_right,
                           struct list_builder *pieces)
{
    for (;;) {
        text = string_strip(text, NULL, !from_right, from_right);
        if (text.size == 0)
            return true;
        if (most-- == 0)
            return add_piece(jinja, pieces, text, markup);
        size_t at = run_end(text, false, from_right);
        if (!add_piece(jinja, pieces, from_right ? part(text, at, text.size) : part(text, 0, at), markup))
            return false;
        text = from_right ? part(text, 0, at) : part(text, at, text.size);
    }
}

bool text_split(struct jinja *jinja, struct jinja_string *string, const struct jinja_string *separator, int64_t most,
                bool from_right, struct value *out)
{
    struct list_builder pieces = {0};
    if (!jinja_work(jinja, string->size))
        return false;
    bool done = separator ? split_at_separator(jinja, string_all(string), string->markup, string_all(separator), most,
                                               from_right, &pieces)
                          : split_at_space(jinja, string_all(string), string->markup, most, from_right, &pieces);
    return done && finish_pieces(jinja, &pieces, from_right, out);
}

bool text_strip(struct jinja *jinja, const struct jinja_string *string, const struct jinja_string *characters,
                bool left, bool right, struct value *out)
{
    // Every character that goes away was compared with all of `characters`.
    if (characters && !jinja_work(jinja, string->size * (1 + characters->size / 64)))
        return false;
    struct slice rest = string_strip(string_all(string), characters, left, right);
    return jinja_work(jinja, string->size - rest.size) && value_from_slice(jinja, rest, string->markup, out);
}

static bool ends_line(uint32_t c)
{
    return (c >= 0x0a && c <= 0x0d) || (c >= 0x1c && c <= 0x1e) || c == 0x85 || c == 0x2028 || c == 0x2029;
}

bool text_split_lines(struct jinja *jinja, const struct jinja_string *string, bool keep_ends, struct value *out)
{
    struct list_builder pieces = {0};
    struct slice text = string_all(string);
    size_t begin = 0, length;
    for (size_t i = 0; i < text.size;) {
        bool ends = ends_line(string_decode(text.data + i, text.size - i, &length));
        size_t behind = i + length;
        if (ends && text.data[i] == '\r' && behind < text.size && text.data[behind] == '\n')
            behind++;
        if (ends) {
            if (!add_piece(jinja, &pieces, part(text, begin, keep_ends ? behind : i), string->markup))
                return false;
            begin = behind;
        }
        i = behind;
    }
    if (begin < text.size && !add_piece(jinja, &pieces, part(text, begin, text.size), string->markup))
        return false;
    return jinja_work(jinja, text.size) && finish_pieces(jinja, &pieces, false, out);
}

bool text_pad(struct jinja *jinja, struct jinja_string *string, int64_t width, const struct jinja_string *fill,
              char align, struct value *out)
{
    static const struct slice space = {" ", 1, NULL, false};
    struct jinja_writer writer = {.jinja = jinja, .markup = string->markup};
    int64_t length = (int64_t)string_length(string), missing = width > length ? width - length : 0;
    int64_t before = align == '>' ? missing : 0;
    if (align == '^')
        before = missing / 2 + (missing & width & 1); // as Python's str.center has it
    if (fill && string_length((struct jinja_string *)fill) != 1)
        return jinja_fail(jinja, "the fill character must be exactly one character long");
    struct slice unit = fill ? string_all(fill) : space;
    return writer_repeat(&writer, unit, (size_t)before) && writer_string(&writer, string) &&
           writer_repeat(&writer, unit, (size_t)(missing - before)) && writer_finish_value(&writer, out);
}
