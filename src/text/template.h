// Chat templates: an interpreter of Jinja as Hugging Face's transformers sets it up. A template comes from an
// untrusted file, so steps, memory, output and recursion are bounded.
#ifndef MOTE_TEXT_TEMPLATE_H
#define MOTE_TEXT_TEMPLATE_H

#include "base/buffer.h"
#include "base/error.h"
#include "text/tokenizer.h"

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

struct template_limits {
    uint64_t steps; // nodes evaluated
    size_t memory;  // bytes of values
    size_t output;  // bytes
    uint32_t depth; // nesting of expressions, blocks and macro calls
};
extern const struct template_limits template_limits_default;

// What a template wrote: text, and which ranges of it come from the template itself and not from its input.
// Special tokens may be recognised there and nowhere else. bos_token and eos_token count as the template's own.
struct rendered {
    struct buffer text;
    struct text_range *trusted;
    size_t n_trusted;
};
void rendered_free(struct rendered *rendered);

// Renders a template. input: a JSON object, its members are the template's variables. now: seconds since 1970 (UTC
// calendar) for strftime_now. An error of raise_exception has the template's own message; no partial output is given.
enum status template_render(const char *source, size_t size, const json_t *input, int64_t now,
                            const struct template_limits *limits, struct rendered *rendered, struct error *error);

#endif
