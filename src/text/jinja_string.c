// Text values and how they are built. See jinja_string.h for what a shadow is.
#include "text/jinja_string.h"

#include "base/utf8.h"
#include "text/jinja_unicode.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { STORE_LEAST = 256 }; // bytes from which on a concatenation leaves room to grow in

struct jinja_string *string_create(struct jinja *jinja, const char *data, size_t size, bool trusted)
{
    struct jinja_string *string = jinja_alloc(jinja, 1, sizeof *string);
    if (!string)
        return NULL;
    string->data = data;
    string->size = size;
    string->trusted = trusted;
    string->length = LENGTH_UNKNOWN;
    return string;
}

struct jinja_string *string_literal(struct jinja *jinja, const char *text)
{
    return string_create(jinja, text, strlen(text), false);
}

struct jinja_string *string_from_slice(struct jinja *jinja, struct slice slice, bool markup)
{
    struct jinja_string *string = string_create(jinja, slice.data, slice.size, slice.trusted);
    if (!string)
        return NULL;
    string->shadow = slice.shadow;
    string->markup = markup;
    return string;
}

bool value_from_slice(struct jinja *jinja, struct slice slice, bool markup, struct value *out)
{
    *out = value_string(string_from_slice(jinja, slice, markup));
    return out->string != NULL;
}

bool value_from_literal(struct jinja *jinja, const char *text, struct value *out)
{
    *out = value_string(string_literal(jinja, text));
    return out->string != NULL;
}

size_t string_length(struct jinja_string *string)
{
    if (string->length == LENGTH_UNKNOWN)
        string->length = string_index(string, string->size);
    return string->length;
}

size_t string_index(struct jinja_string *string, size_t offset)
{
    if (string->length == string->size)
        return offset;
    size_t count = 0;
    for (size_t i = 0; i < offset; i++)
        count += ((unsigned char)string->data[i] & 0xc0) != 0x80;
    return count;
}

size_t string_offset(struct jinja_string *string, size_t index)
{
    if (string_length(string) == string->size)
        return index;
    size_t offset = 0;
    while (offset < string->size) {
        bool begins = ((unsigned char)string->data[offset] & 0xc0) != 0x80;
        if (begins && index-- == 0)
            break;
        offset++;
    }
    return offset;
}

uint32_t string_decode(const char *data, size_t size, size_t *length)
{
    if (size && (unsigned char)data[0] < 0x80) {
        *length = 1;
        return (unsigned char)data[0];
    }
    uint32_t code_point = 0xfffd;
    *length = utf8_decode(data, size, &code_point);
    if (*length == 0) // does not happen in valid text
        *length = 1;
    return code_point;
}

uint32_t string_decode_before(const char *data, size_t offset, size_t *length)
{
    size_t begin = offset - 1;
    while (begin > 0 && offset - begin < 4 && ((unsigned char)data[begin] & 0xc0) == 0x80)
        begin--;
    uint32_t code_point = string_decode(data + begin, offset - begin, length);
    *length = offset - begin;
    return code_point;
}

bool string_equal(const struct jinja_string *a, const struct jinja_string *b)
{
    return a == b || (a->size == b->size && (a->size == 0 || memcmp(a->data, b->data, a->size) == 0));
}

bool string_is(const struct jinja_string *string, const char *text)
{
    return string->size == strlen(text) && (string->size == 0 || memcmp(string->data, text, string->size) == 0);
}

int string_compare(const struct jinja_string *a, const struct jinja_string *b)
{
    // UTF-8 sorts as its code points do.
    size_t common = a->size < b->size ? a->size : b->size;
    int order = common ? memcmp(a->data, b->data, common) : 0;
    return order ? order : (a->size > b->size) - (a->size < b->size);
}

size_t string_find(struct slice haystack, struct slice needle, size_t from)
{
    if (from > haystack.size)
        return SIZE_MAX;
    if (needle.size == 0)
        return from;
    const char *found = memmem(haystack.data + from, haystack.size - from, needle.data, needle.size);
    return found ? (size_t)(found - haystack.data) : SIZE_MAX;
}

bool string_find_last(struct jinja *jinja, struct slice haystack, struct slice needle, size_t *at)
{
    *at = needle.size == 0 ? haystack.size : SIZE_MAX;
    for (size_t end = haystack.size; needle.size && end >= needle.size; end--) {
        const char *candidate = haystack.data + end - needle.size;
        if (candidate[0] != needle.data[0] || candidate[needle.size - 1] != needle.data[needle.size - 1])
            continue;
        if (!jinja_work(jinja, needle.size))
            return false;
        if (memcmp(candidate, needle.data, needle.size) == 0) {
            *at = end - needle.size;
            break;
        }
    }
    return true;
}

static bool grow(struct jinja_writer *writer, size_t needed)
{
    size_t capacity = writer->capacity ? writer->capacity * 2 : 64;
    if (capacity < needed)
        capacity = needed;
    char *data = jinja_alloc(writer->jinja, capacity, 1);
    if (!data)
        return false;
    if (writer->size)
        memcpy(data, writer->data, writer->size);
    if (writer->shadow) {
        unsigned char *shadow = jinja_alloc(writer->jinja, capacity, 1);
        if (!shadow)
            return false;
        memcpy(shadow, writer->shadow, writer->size);
        writer->shadow = shadow;
    }
    writer->data = data;
    writer->capacity = capacity;
    return true;
}

bool writer_reserve(struct jinja_writer *writer, size_t additional)
{
    size_t needed;
    if (__builtin_add_overflow(writer->size, additional, &needed) || (writer->limit && needed > writer->limit))
        return jinja_fail(writer->jinja, "the template's output is too long");
    return needed <= writer->capacity || grow(writer, needed);
}

// Gives the writer a shadow that says what `trusted` said so far.
static bool add_shadow(struct jinja_writer *writer)
{
    writer->shadow = jinja_alloc(writer->jinja, writer->capacity, 1);
    if (!writer->shadow)
        return false;
    memset(writer->shadow, writer->trusted, writer->size);
    return true;
}

bool writer_slice(struct jinja_writer *writer, struct slice slice)
{
    if (slice.size == 0)
        return true;
    if (!writer_reserve(writer, slice.size) || !jinja_work(writer->jinja, slice.size))
        return false;
    if (writer->size == 0 && !slice.shadow && !writer->shadow)
        writer->trusted = slice.trusted;
    else if (!writer->shadow && (slice.shadow || slice.trusted != writer->trusted) && !add_shadow(writer))
        return false;
    memcpy(writer->data + writer->size, slice.data, slice.size);
    if (writer->shadow && slice.shadow)
        memcpy(writer->shadow + writer->size, slice.shadow, slice.size);
    else if (writer->shadow)
        memset(writer->shadow + writer->size, slice.trusted, slice.size);
    writer->size += slice.size;
    return true;
}

bool writer_string(struct jinja_writer *writer, const struct jinja_string *string)
{
    return writer_slice(writer, string_all(string));
}

bool writer_bytes(struct jinja_writer *writer, const char *data, size_t size, bool trusted)
{
    return writer_slice(writer, (struct slice){data, size, NULL, trusted});
}

bool writer_text(struct jinja_writer *writer, const char *text)
{
    return writer_bytes(writer, text, strlen(text), false);
}

bool writer_code_point(struct jinja_writer *writer, uint32_t code_point, bool trusted)
{
    char bytes[4];
    return writer_bytes(writer, bytes, utf8_encode(code_point, bytes), trusted);
}

bool writer_repeat(struct jinja_writer *writer, struct slice slice, size_t times)
{
    size_t total;
    if (slice.size == 0 || times == 0)
        return true;
    if (__builtin_mul_overflow(slice.size, times, &total) || total > writer->jinja->limits->memory)
        return jinja_fail(writer->jinja, "a text of %zu × %zu bytes is too long", slice.size, times);
    // Once as a slice, then what is there already, twice as much each time.
    size_t begin = writer->size;
    if (!writer_reserve(writer, total) || !writer_slice(writer, slice) || !jinja_work(writer->jinja, total))
        return false;
    for (size_t done = slice.size; done < total;) {
        size_t more = done < total - done ? done : total - done;
        memcpy(writer->data + begin + done, writer->data + begin, more);
        if (writer->shadow)
            memcpy(writer->shadow + begin + done, writer->shadow + begin, more);
        done += more;
        writer->size += more;
    }
    return true;
}

bool writer_format(struct jinja_writer *writer, const char *format, ...)
{
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (length < 0 || (size_t)length >= sizeof text)
        return jinja_fail(writer->jinja, "a formatted text is too long");
    return writer_bytes(writer, text, (size_t)length, false);
}

struct jinja_string *writer_finish(struct jinja_writer *writer)
{
    struct slice slice = {writer->data ? writer->data : "", writer->size, writer->shadow, writer->trusted};
    return string_from_slice(writer->jinja, slice, writer->markup);
}

bool writer_finish_value(struct jinja_writer *writer, struct value *out)
{
    *out = value_string(writer_finish(writer));
    return out->string != NULL;
}

// Whether b can be written right behind a, in a's memory.
static bool fits_store(const struct jinja_string *a, const struct jinja_string *b)
{
    const struct jinja_store *store = a->store;
    if (!store || a->data + a->size != store->data + store->used || store->capacity - store->used < b->size)
        return false;
    return store->shadow || (!b->shadow && a->trusted == b->trusted);
}

static bool create_store(struct jinja *jinja, const struct jinja_string *a, const struct jinja_string *b,
                         size_t expected, struct jinja_store **out)
{
    size_t total;
    if (__builtin_add_overflow(a->size, b->size, &total) || __builtin_add_overflow(total, expected, &total) ||
        total > jinja->limits->memory)
        return jinja_fail(jinja, "a text is too long");
    struct jinja_store *store = jinja_alloc(jinja, 1, sizeof *store);
    if (!store)
        return false;
    store->capacity = total < STORE_LEAST ? total : total * 2;
    store->data = jinja_alloc(jinja, store->capacity, 1);
    if (!store->data)
        return false;
    bool mixed = a->shadow || b->shadow || a->trusted != b->trusted;
    if (mixed) {
        store->shadow = jinja_alloc(jinja, store->capacity, 1);
        if (!store->shadow)
            return false;
        if (a->shadow)
            memcpy(store->shadow, a->shadow, a->size);
        else
            memset(store->shadow, a->trusted, a->size);
    }
    memcpy(store->data, a->data, a->size);
    store->used = a->size;
    *out = store;
    return jinja_work(jinja, a->size);
}

struct jinja_string *string_concat(struct jinja *jinja, const struct jinja_string *a, const struct jinja_string *b,
                                   size_t expected)
{
    bool markup = a->markup;
    if (a->size == 0)
        return string_from_slice(jinja, string_all(b), markup);
    if (b->size == 0)
        return string_from_slice(jinja, string_all(a), markup);
    struct jinja_store *store = a->store;
    size_t offset = store ? (size_t)(a->data - store->data) : 0;
    if (!fits_store(a, b)) {
        offset = 0;
        if (!create_store(jinja, a, b, expected, &store))
            return NULL;
    }
    if (!jinja_work(jinja, b->size))
        return NULL;
    memcpy(store->data + store->used, b->data, b->size);
    if (store->shadow && b->shadow)
        memcpy(store->shadow + store->used, b->shadow, b->size);
    else if (store->shadow)
        memset(store->shadow + store->used, b->trusted, b->size);
    store->used += b->size;
    struct jinja_string *string = string_create(jinja, store->data + offset, store->used - offset, a->trusted);
    if (!string)
        return NULL;
    string->shadow = store->shadow ? store->shadow + offset : NULL;
    string->store = store;
    string->markup = markup;
    return string;
}

bool writer_escaped(struct jinja_writer *writer, struct slice slice)
{
    size_t done = 0;
    for (size_t i = 0; i <= slice.size; i++) {
        const char *entity = NULL;
        if (i < slice.size) {
            switch (slice.data[i]) {
            case '&':
                entity = "&amp;";
                break;
            case '<':
                entity = "&lt;";
                break;
            case '>':
                entity = "&gt;";
                break;
            case '\'':
                entity = "&#39;";
                break;
            case '"':
                entity = "&#34;";
                break;
            default:
                continue;
            }
        }
        struct slice plain = {slice.data + done, i - done, slice.shadow ? slice.shadow + done : NULL, slice.trusted};
        bool trusted = i < slice.size && (slice.shadow ? slice.shadow[i] : slice.trusted);
        if (!writer_slice(writer, plain) || (entity && !writer_bytes(writer, entity, strlen(entity), trusted)))
            return false;
        done = i + 1;
    }
    return true;
}

struct jinja_string *string_escape(struct jinja *jinja, struct jinja_string *string)
{
    if (string->markup)
        return string;
    struct jinja_writer writer = {.jinja = jinja, .markup = true};
    return writer_escaped(&writer, string_all(string)) ? writer_finish(&writer) : NULL;
}

static bool in_characters(uint32_t code_point, const struct jinja_string *characters)
{
    if (!characters)
        return unicode_is_space(code_point);
    for (size_t i = 0, length; i < characters->size; i += length)
        if (string_decode(characters->data + i, characters->size - i, &length) == code_point)
            return true;
    return false;
}

struct slice string_strip(struct slice slice, const struct jinja_string *characters, bool left, bool right)
{
    size_t length;
    while (left && slice.size && in_characters(string_decode(slice.data, slice.size, &length), characters)) {
        slice.data += length;
        slice.size -= length;
        slice.shadow = slice.shadow ? slice.shadow + length : NULL;
    }
    while (right && slice.size && in_characters(string_decode_before(slice.data, slice.size, &length), characters))
        slice.size -= length;
    return slice;
}
