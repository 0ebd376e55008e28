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
    if (!before || i + 2 >= count || !is_letter(text[i + 1].code_point))
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

// A line of the source in pieces.
struct pieces {
    const struct character *text; // one more than there are, for the offset of the end
    const size_t *ends;           // of each piece
    size_t count;
    size_t piece; // the next one …
    size_t at;    // … from here on: its first part may be gone
};

static bool only_blank(const struct character *text, size_t begin, size_t end)
{
    while (begin < end && unicode_is_space(text[begin].code_point))
        begin++;
    return begin == end;
}

// Where to break a word of which only `room` characters fit: behind its last hyphen, if there is one.
static size_t break_at(const struct wrapping *wrapping, const struct character *text, size_t begin, size_t room)
{
    bool other = false; // something besides hyphens stands before
    size_t end = begin + room;
    for (size_t i = begin; wrapping->break_on_hyphens && i < begin + room; i++) {
        if (text[i].code_point == '-' && other)
            end = i + 1;
        other |= text[i].code_point != '-';
    }
    return end;
}

// Takes the pieces of the next line. *end: where it ends, without white space there; false: nothing is left of it.
static bool take_line(const struct wrapping *wrapping, struct pieces *pieces, size_t *end)
{
    size_t begin = pieces->at, width = (size_t)wrapping->width, last = begin; // last: the beginning of the last piece
    while (pieces->piece < pieces->count && pieces->ends[pieces->piece] - begin <= width) {
        last = pieces->at;
        pieces->at = pieces->ends[pieces->piece++];
    }
    bool taken = pieces->at > begin;
    if (pieces->piece < pieces->count && pieces->ends[pieces->piece] - pieces->at > width) {
        // The next one fits in no line.
        size_t room = width - (pieces->at - begin);
        if (wrapping->break_long_words) {
            last = pieces->at;
            pieces->at = room ? break_at(wrapping, pieces->text, pieces->at, room) : pieces->at;
            taken = true;
        } else if (!taken) {
            last = pieces->at;
            pieces->at = pieces->ends[pieces->piece++];
            taken = true;
        }
    }
    *end = taken && only_blank(pieces->text, last, pieces->at) ? last : pieces->at;
    return *end > begin;
}

// One line of the source, broken into as many as needed.
static bool wrap_line(struct jinja_writer *writer, const struct wrapping *wrapping, const struct jinja_string *line)
{
    struct jinja *jinja = writer->jinja;
    struct character *text = jinja_alloc(jinja, line->size + 1, sizeof *text);
    size_t *ends = jinja_alloc(jinja, line->size + 1, sizeof *ends);
    struct pieces pieces = {.text = text, .ends = ends};
    size_t count = 0;
    if (!text || !ends || !jinja_work(jinja, line->size))
        return false;
    for (size_t i = 0, length; i < line->size; i += length)
        text[count++] = (struct character){string_decode(line->data + i, line->size - i, &length), i};
    text[count].offset = line->size;
    for (size_t at = 0; at < count; at = ends[pieces.count++])
        ends[pieces.count] = piece_end(text, count, at, wrapping->break_on_hyphens);
    for (bool first = true; pieces.piece < pieces.count;) {
        if (!first && only_blank(text, pieces.at, ends[pieces.piece])) {
            pieces.at = ends[pieces.piece++];
            if (pieces.piece == pieces.count)
                break;
        }
        size_t begin = pieces.at, end;
        if (!jinja_step(jinja))
            return false;
        if (!take_line(wrapping, &pieces, &end))
            continue;
        struct slice part = string_slice(line, text[begin].offset, text[end].offset);
        if ((!first && !writer_string(writer, wrapping->newline)) || !writer_slice(writer, part))
            return false;
        first = false;
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
