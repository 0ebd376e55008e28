// UTF-8, strictly: no surrogates, no overlong forms, nothing above U+10FFFF.
#ifndef MOTE_BASE_UTF8_H
#define MOTE_BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Reads one code point from text[0..size). Returns its length in bytes, 0 where the bytes are not valid (or size is 0).
size_t utf8_decode(const char *text, size_t size, uint32_t *code_point);

// Writes code_point (a valid one) to out; returns its length, 1 to 4.
size_t utf8_encode(uint32_t code_point, char out[4]);

// Whether all of text is valid; where not, *bad (may be NULL) gets the offset of the first bad byte.
bool utf8_valid(const char *text, size_t size, size_t *bad);

// How many bytes at the end of text are the beginning of a character that is not complete yet: 0 to 3.
size_t utf8_incomplete_tail(const char *text, size_t size);

// Copies text (NUL-terminated) to out for people to read: control characters and invalid bytes become \xNN, what does
// not fit is left out. cut: text may end inside a character, which is then left out.
void utf8_printable(char *out, size_t capacity, const char *text, bool cut);

#endif
