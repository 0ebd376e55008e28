// Any template, with any input: the bytes up to the first NUL are the template, the rest is its input as JSON (where
// that is no object, a small one of our own). It may fail, with a message; it must not crash, hang or take more than
// its limits, and what it calls its own text must be ranges of its output.
#include "base/utf8.h"
#include "text/template.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char own_input[] =
    "{\"messages\": [{\"role\": \"user\", \"content\": \"h\\u00e9 <|x|>\"}, {\"role\": \"assistant\", \"content\": "
    "null}],"
    "\"n\": 3, \"f\": 2.5, \"s\": \"Hello World\", \"l\": [3, 1, 2], \"d\": {\"a\": 1, \"b\": \"two\"}, \"t\": true,"
    "\"nested\": [[1, 2], [3], []], \"bos_token\": \"<s>\"}";

static void require(bool holds, const char *what)
{
    if (holds)
        return;
    fprintf(stderr, "%s\n", what);
    abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct template_limits limits = {
        .steps = 200000, .memory = 32 << 20, .output = 1 << 20, .depth = 1000};
    const char *source = (const char *)data;
    const char *end = size ? memchr(source, '\0', size) : NULL;
    size_t source_size = end ? (size_t)(end - source) : size;
    json_t *input = end ? json_loadb(end + 1, size - source_size - 1, JSON_ALLOW_NUL, NULL) : NULL;
    if (!json_is_object(input)) {
        json_decref(input);
        input = json_loads(own_input, 0, NULL);
    }
    struct rendered rendered;
    struct error error = {0};
    enum status status = template_render(source, source_size, input, 1767323045, &limits, &rendered, &error);
    if (status == STATUS_OK) {
        size_t last = 0;
        require(rendered.text.size <= limits.output, "the output is longer than its limit");
        require(utf8_valid(rendered.text.data ? rendered.text.data : "", rendered.text.size, NULL), "not UTF-8");
        for (size_t i = 0; i < rendered.n_trusted; i++) {
            const struct text_range *range = &rendered.trusted[i];
            require(range->begin < range->end && range->end <= rendered.text.size, "a range is outside of the text");
            require(i == 0 || range->begin > last, "ranges touch, overlap or are out of order");
            last = range->end;
        }
    } else {
        require(rendered.text.size == 0 && rendered.n_trusted == 0, "a failure gave output");
        require(utf8_valid(error.message, strlen(error.message), NULL), "a message is not UTF-8");
    }
    rendered_free(&rendered);
    json_decref(input);
    return 0;
}
