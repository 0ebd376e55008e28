// UTF-8 as Unicode's table 3-7 has it: what follows a lead byte depends on the lead byte only in the second byte.
#include "base/utf8.h"

#include <string.h>

// For a lead byte: the length of its character (0: no lead byte) and the range of the second byte.
static size_t lead_length(unsigned char lead, unsigned char *low, unsigned char *high)
{
    *low = 0x80;
    *high = 0xbf;
    if (lead < 0x80)
        return 1;
    if (lead < 0xc2)
        return 0;
    if (lead < 0xe0)
        return 2;
    if (lead < 0xf0) {
        if (lead == 0xe0)
            *low = 0xa0; // shorter forms exist
        if (lead == 0xed)
            *high = 0x9f; // surrogates
        return 3;
    }
    if (lead < 0xf5) {
        if (lead == 0xf0)
            *low = 0x90; // shorter forms exist
        if (lead == 0xf4)
            *high = 0x8f; // above U+10FFFF
        return 4;
    }
    return 0;
}

// How many of the bytes (at most the character's length) form a valid beginning of one character.
static size_t valid_prefix(const unsigned char *bytes, size_t size, size_t *length)
{
    unsigned char low, high;
    *length = size ? lead_length(bytes[0], &low, &high) : 0;
    if (*length == 0)
        return 0;
    size_t i = 1;
    for (; i < *length && i < size; i++) {
        if (bytes[i] < low || bytes[i] > high)
            break;
        low = 0x80;
        high = 0xbf;
    }
    return i;
}

size_t utf8_decode(const char *text, size_t size, uint32_t *code_point)
{
    const unsigned char *bytes = (const unsigned char *)text;
    size_t length;
    if (valid_prefix(bytes, size, &length) != length || length == 0)
        return 0;
    if (length == 1) {
        *code_point = bytes[0];
        return 1;
    }
    uint32_t value = bytes[0] & (0x7fu >> length);
    for (size_t i = 1; i < length; i++)
        value = value << 6 | (bytes[i] & 0x3f);
    *code_point = value;
    return length;
}

size_t utf8_encode(uint32_t code_point, char out[4])
{
    if (code_point < 0x80) {
        out[0] = (char)code_point;
        return 1;
    }
    size_t length = code_point < 0x800 ? 2 : code_point < 0x10000 ? 3 : 4;
    for (size_t i = length - 1; i > 0; i--) {
        out[i] = (char)(0x80 | (code_point & 0x3f));
        code_point >>= 6;
    }
    out[0] = (char)(0xf00u >> length | code_point); // 0xf00 >> 2, 3, 4 ends in c0, e0, f0
    return length;
}

bool utf8_valid(const char *text, size_t size, size_t *bad)
{
    size_t i = 0;
    while (i < size) {
        uint64_t word;
        if (size - i >= sizeof word) { // eight ASCII bytes at once
            memcpy(&word, text + i, sizeof word);
            if ((word & 0x8080808080808080u) == 0) {
                i += sizeof word;
                continue;
            }
        }
        uint32_t code_point;
        size_t length = utf8_decode(text + i, size - i, &code_point);
        if (length == 0) {
            if (bad)
                *bad = i;
            return false;
        }
        i += length;
    }
    return true;
}

size_t utf8_incomplete_tail(const char *text, size_t size)
{
    const unsigned char *bytes = (const unsigned char *)text;
    for (size_t tail = 1; tail <= 3 && tail <= size; tail++) {
        const unsigned char *start = bytes + size - tail;
        if ((*start & 0xc0) == 0x80)
            continue; // inside a character
        size_t length;
        return valid_prefix(start, tail, &length) == tail && tail < length ? tail : 0;
    }
    return 0;
}

void utf8_printable(char *out, size_t capacity, const char *text, bool cut)
{
    static const char hex[] = "0123456789abcdef";
    size_t size = strlen(text);
    if (cut) // the cut may lie inside a character
        size -= utf8_incomplete_tail(text, size);
    size_t used = 0;
    for (size_t i = 0; i < size;) {
        uint32_t code_point;
        size_t length = utf8_decode(text + i, size - i, &code_point);
        bool control = length && (code_point < 0x20 || (code_point >= 0x7f && code_point < 0xa0));
        if (length && !control) {
            if (used + length + 1 > capacity)
                break;
            memcpy(out + used, text + i, length);
            used += length;
            i += length;
            continue;
        }
        if (used + 4 + 1 > capacity)
            break;
        unsigned char byte = (unsigned char)text[i++];
        out[used++] = '\\';
        out[used++] = 'x';
        out[used++] = hex[byte >> 4];
        out[used++] = hex[byte & 15];
    }
    out[used] = '\0';
}
