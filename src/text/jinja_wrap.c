// wordwrap, as Python's textwrap breaks lines: at white space, behind hyphens inside words, and in words that are
// longer than a line.
#include "text/jinja_filters.h"
#include "text/jinja_number.h"
#include "text/jinja_text.h"
#include "text/jinja_unicode.h"

#include <string.h>

struct wrapping {
    int64_t width;
    bool break_long_words;
    bool break_on_hyphens;
    const struct jinja_string *newline;
};

// A character and its place, so that the rules below can look back and ahead.
struct character {
    uint32_t code_point;
    size_t offset;
};

static bool is_blank(uint32_t c)
{
    return c == ' ' || (c >= 0x09 && c <= 0x0d);
}

static bool is_letter(uint32_t c)
{
    return unicode_is_word(c) && !unicode_is_decimal(c);
}

static bool is_word_punctuation(uint32_t c)
{
    return unicode_is_word(c) || (c < 0x80 && c && strchr("!\"'&.,?", (int)c));
}

// Whether a word may be broken behind the hyphen at i: letters on both sides.
static bool breaks_behind(const struct character *text, size_t count, size_t begin, size_t i)
{
    bool before = (i >= begin + 2 && is_letter(text[i - 1].code_point) && is_letter(text[i - 2].code_point)) ||
                  (i >= begin + 3 && is_word_punctuation(text[i - 1].code_point) && text[i - 2].code_point == '-' &&
                   is_letter(text[i - 3].code_point));
    if (!before || i + 2 >= count + 0 || !is_letter(text[i + 1].code_point))
        return false;
    size_t next = i + 2 + (text[i + 2].code_point == '-');
    return next < count && is_letter(text[next].code_point);
}

// The end of the piece that begins at `begin`: white space, a dash between words, or a word up to where it may break.
static size_t piece_end(const struct character *text, size_t count, size_t begin, bool hyphens)
{
    size_t end = begin;
    if (is_blank(text[begin].code_point)) {
        while (end < count && is_blank(text[end].code_point))
            end++;
        return end;
    }
    size_t dashes = begin;
    while (dashes < count && text[dashes].code_point == '-')
        dashes++;
    if (hyphens && dashes - begin >= 2 && begin > 0 && is_word_punctuation(text[begin - 1].code_point) &&
        dashes < count && unicode_is_word(text[dashes].code_point))
        return dashes;
    for (end = begin; end < count && !is_blank(text[end].code_point); end++) {
        if (!hyphens)
            continue;
        if (text[end].code_point == '-' && breaks_behind(text, count, 0, end) && end > begin)
            return end + 1;
        if (end > begin && text[end].code_point == '-' && is_word_punctuation(text[end - 1].code_point)) {
            size_t dash = end;
            while (dash < count && text[dash].code_point == '-')
                dash++;
            if (dash - end >= 2 && dash < count && unicode_is_word(text[dash].code_point))
                return end;
        }
    }
    return end;
}

static bool write_line(struct jinja_writer *writer, const struct wrapping *wrapping, const struct jinja_string *source,
                       size_t begin, size_t end, bool first)
{
    return (first || writer_string(writer, wrapping->newline)) &&
           writer_slice(writer, string_slice(source, begin, end));
}

// One line of the source, broken into as many as needed.
static bool wrap_line(struct jinja_writer *writer, const struct wrapping *wrapping, const struct jinja_string *line)
{
    struct jinja *jinja = writer->jinja;
    struct character *text = jinja_alloc(jinja, line->size + 1, sizeof *text);
    size_t count = 0, width = (size_t)wrapping->width;
    if (!text || !jinja_work(jinja, line->size))
        return false;
    for (size_t i = 0, length; i < line->size; i += length)
        text[count++] = (struct character){string_decode(line->data + i, line->size - i, &length), i};
    text[count].offset = line->size;
    bool first = true;
    for (size_t at = 0; at < count;) {
        size_t begin = at, end = at, content = at; // content: end of the line without white space at its end
        if (!first && is_blank(text[at].code_point))
            begin = end = content = piece_end(text, count, at, wrapping->break_on_hyphens);
        while (end < count) {
            size_t next = piece_end(text, count, end, wrapping->break_on_hyphens);
            if (next - begin > width) {
                bool too_long = next - end > width;
                if (too_long && wrapping->break_long_words)
                    content = end = begin + width > end ? begin + width : end;
                else if (too_long && end == begin)
                    content = end = next;
                break;
            }
            bool blank = is_blank(text[end].code_point);
            end = next;
            content = blank ? content : end;
        }
        bool only_blank = content <= begin;
        if (!only_blank && !write_line(writer, wrapping, line, text[begin].offset, text[content].offset, first))
            return false;
        first = first && only_blank;
        if (end == at) // does not happen: every line takes something
            break;
        at = end;
    }
    return true;
}

bool filter_wordwrap(struct jinja *jinja, const struct call *call, struct value *out)
{
    struct jinja_writer writer = {.jinja = jinja};
    struct jinja_string *newline;
    struct value lines;
    struct wrapping wrapping = {.break_long_words = argument_bool(call, 1, true),
                                .break_on_hyphens = argument_bool(call, 3, true)};
    if (call->self.kind == VALUE_UNDEFINED)
        return value_fail_undefined(jinja, call->self);
    if (call->self.kind != VALUE_STRING)
        return jinja_fail(jinja, "wordwrap needs str, not '%s'", value_type_name(call->self));
    if (!argument_int(jinja, call, 0, "width", 79, &wrapping.width) ||
        !argument_string(jinja, call, 2, "wrapstring", &newline) ||
        !text_split_lines(jinja, call->self.string, false, &lines))
        return false;
    if (wrapping.width <= 0)
        return jinja_fail(jinja, "invalid width %lld (must be > 0)", (long long)wrapping.width);
    wrapping.newline = newline ? newline : string_literal(jinja, "\n");
    if (!wrapping.newline)
        return false;
    for (size_t i = 0; i < lines.list->count; i++)
        if ((i && !writer_string(&writer, wrapping.newline)) ||
            !wrap_line(&writer, &wrapping, lines.list->items[i].string))
            return false;
    return writer_finish_value(&writer, out);
}
