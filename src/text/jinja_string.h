// Text values: UTF-8 bytes that know which of them the template itself wrote (its literals: "trusted") and which came
// from its input. Unless the whole is of one kind, a shadow holds a byte (0 or 1) for each byte of text; it follows
// the text through slicing, joining and the filters. What is made from neither (digits of a number) is not trusted.
#ifndef MOTE_TEXT_JINJA_STRING_H
#define MOTE_TEXT_JINJA_STRING_H

#include "text/jinja_value.h"

#define LENGTH_UNKNOWN SIZE_MAX

// Memory that a string ends in, with room behind it: so `text = text + more` in a loop costs what it adds.
struct jinja_store {
    char *data;
    unsigned char *shadow; // NULL: none
    size_t used;
    size_t capacity;
};

struct jinja_string {
    const char *data; // valid UTF-8, not NUL-terminated
    size_t size;
    const unsigned char *shadow; // NULL: every byte is as `trusted` says
    struct jinja_store *store;   // NULL: none
    size_t length;               // code points; LENGTH_UNKNOWN: not counted yet
    uint64_t hash;               // 0: not computed yet
    bool trusted;
    bool markup; // Markup: need not be escaped
};

// A part [begin, end) of a string, in bytes.
struct slice {
    const char *data;
    size_t size;
    const unsigned char *shadow;
    bool trusted;
};

// Builds a string piece by piece. Zeros and jinja: ready.
struct jinja_writer {
    struct jinja *jinja;
    char *data;
    unsigned char *shadow;
    size_t size;
    size_t capacity;
    bool trusted; // of all bytes, while there is no shadow
    bool markup;  // of the result
    size_t limit; // most bytes; 0: none beyond the arena's
};

static inline struct slice string_slice(const struct jinja_string *string, size_t begin, size_t end)
{
    return (struct slice){string->data + begin, end - begin, string->shadow ? string->shadow + begin : NULL,
                          string->trusted};
}

static inline struct slice string_all(const struct jinja_string *string)
{
    return string_slice(string, 0, string->size);
}

struct jinja_string *string_create(struct jinja *jinja, const char *data, size_t size, bool trusted); // not copied
struct jinja_string *string_literal(struct jinja *jinja, const char *text);                           // not trusted
struct jinja_string *string_from_slice(struct jinja *jinja, struct slice slice, bool markup);         // shares memory
// A slice of text as a value; false where memory ran out.
bool value_from_slice(struct jinja *jinja, struct slice slice, bool markup, struct value *out);
bool value_from_literal(struct jinja *jinja, const char *text, struct value *out);

// Code points. Where all are ASCII, positions need no search.
size_t string_length(struct jinja_string *string);
// The byte offset of the code point at index (≤ length).
size_t string_offset(struct jinja_string *string, size_t index);
// How many code points lie in bytes [0, offset).
size_t string_index(struct jinja_string *string, size_t offset);
// The code point at byte offset, and its length in bytes. The text is valid, so there always is one before the end.
uint32_t string_decode(const char *data, size_t size, size_t *length);
// The code point before byte offset, and its length.
uint32_t string_decode_before(const char *data, size_t offset, size_t *length);

bool string_equal(const struct jinja_string *a, const struct jinja_string *b);
bool string_is(const struct jinja_string *string, const char *text);
int string_compare(const struct jinja_string *a, const struct jinja_string *b); // by code points
// The offset of needle in haystack at or after `from`, or SIZE_MAX.
size_t string_find(struct slice haystack, struct slice needle, size_t from);
// The last one. Fails where comparing takes more steps than are left.
bool string_find_last(struct jinja *jinja, struct slice haystack, struct slice needle, size_t *at);

bool writer_reserve(struct jinja_writer *writer, size_t additional);
bool writer_slice(struct jinja_writer *writer, struct slice slice);
bool writer_string(struct jinja_writer *writer, const struct jinja_string *string);
bool writer_bytes(struct jinja_writer *writer, const char *data, size_t size, bool trusted);
bool writer_text(struct jinja_writer *writer, const char *text); // NUL-terminated, not trusted
bool writer_code_point(struct jinja_writer *writer, uint32_t code_point, bool trusted);
bool writer_repeat(struct jinja_writer *writer, struct slice slice, size_t times);
bool writer_format(struct jinja_writer *writer, const char *format, ...) __attribute__((format(printf, 2, 3)));
struct jinja_string *writer_finish(struct jinja_writer *writer);
bool writer_finish_value(struct jinja_writer *writer, struct value *out);

// a + b, in place where a ends its store. expected: bytes that will be appended after b. Markup where a is.
struct jinja_string *string_concat(struct jinja *jinja, const struct jinja_string *a, const struct jinja_string *b,
                                   size_t expected);

// Writes text with & < > ' " as entities.
bool writer_escaped(struct jinja_writer *writer, struct slice slice);
// The string as Markup: escaped unless it is Markup already.
struct jinja_string *string_escape(struct jinja *jinja, struct jinja_string *string);

// [begin, end) without leading and trailing code points that are in `characters` (NULL: white space).
struct slice string_strip(struct slice slice, const struct jinja_string *characters, bool left, bool right);

#endif
