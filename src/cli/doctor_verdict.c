// What a report means, in plain sentences.
#include "doctor.h"

#include <stdarg.h>
#include <string.h>

enum { NAMED = 5 }; // findings that are named one by one

static void say(json_t *verdict, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void say(json_t *verdict, const char *format, ...)
{
    char text[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    json_array_append_new(verdict, json_string(text));
}

const struct doctor_line *doctor_largest(const struct doctor_report *report, int layer)
{
    const struct doctor_line *largest = NULL;
    for (size_t i = 0; i < report->n_lines; i++) {
        const struct doctor_line *line = &report->lines[i];
        if ((layer == -2 || line->layer == layer) && (!largest || line->largest > largest->largest)) {
            largest = line;
        }
    }
    return largest;
}

// ---- layers

static bool is_over(const struct doctor_report *report, const char *kind, int layer)
{
    for (size_t i = 0; i < report->n_lines; i++) {
        const struct doctor_line *line = &report->lines[i];
        if (line->layer == layer && line->n_over > 0 && strcmp(line->kind, kind) == 0) {
            return true;
        }
    }
    return false;
}

struct layers_text doctor_layers_over(const struct doctor_report *report, const char *kind)
{
    struct layers_text layers = {{0}};
    size_t size = 0;
    for (int first = 0; first < report->n_layers; first++) {
        int last = first;
        if (!is_over(report, kind, first)) {
            continue;
        }
        while (last + 1 < report->n_layers && is_over(report, kind, last + 1)) {
            last++;
        }
        if (size + 32 > sizeof layers.text) {
            snprintf(layers.text + size, sizeof layers.text - size, " …");
            break;
        }
        size += (size_t)snprintf(layers.text + size, sizeof layers.text - size, "%s%d", size ? ", " : "", first);
        if (last > first) {
            size += (size_t)snprintf(layers.text + size, sizeof layers.text - size, "-%d", last);
        }
        first = last;
    }
    return layers;
}

// ---- what is not finite

static void judge_weights(const struct doctor_report *report, json_t *verdict)
{
    const json_t *weights = json_object_get(report->json, "weights");
    const json_t *bad = json_object_get(weights, "not_finite"), *zeros = json_object_get(weights, "zero_experts"),
                 *item;
    size_t i;
    json_array_foreach(bad, i, item)
    {
        if (i < NAMED) {
            say(verdict,
                "The weights of %s hold %lld NaN and %lld infinite values: the file is damaged or badly converted, and "
                "no "
                "engine can answer with it.",
                json_string_value(json_object_get(item, "tensor")),
                (long long)json_integer_value(json_object_get(item, "nan")),
                (long long)json_integer_value(json_object_get(item, "infinite")));
        }
    }
    if (json_array_size(bad) > NAMED) {
        say(verdict, "So do %zu more tensors (--json names them).", json_array_size(bad) - NAMED);
    }
    json_array_foreach(zeros, i, item)
    {
        const json_t *experts = json_object_get(item, "experts");
        if (i < NAMED) {
            say(verdict, "%zu of the experts of %s are all zeros (the first is %lld): they add nothing to any answer.",
                json_array_size(experts), json_string_value(json_object_get(item, "tensor")),
                (long long)json_integer_value(json_array_get(experts, 0)));
        }
    }
    if (json_array_size(zeros) > NAMED) {
        say(verdict, "So are experts of %zu more tensors (--json names them).", json_array_size(zeros) - NAMED);
    }
}

static void judge_finite(const struct doctor_report *report, json_t *verdict)
{
    const struct doctor_line *first = NULL;
    for (size_t i = 0; i < report->n_lines && !first; i++) {
        first = report->lines[i].n_not_finite > 0 ? &report->lines[i] : NULL;
    }
    const char *error = json_string_value(json_object_get(report->json, "error"));
    if (first) {
        say(verdict, "With sources in F32, NaN or infinity first appears in what goes into %s%s%s (%.0f of %.0f rows).",
            first->tensor ? first->tensor : "the cache's ", first->tensor ? "" : first->kind,
            json_array_size(json_object_get(json_object_get(report->json, "weights"), "not_finite")) > 0
                ? ""
                : ", though all weights are finite: numbers pass F32's own range",
            first->n_not_finite, first->n_rows);
    }
    if (error) {
        const char *advice = strstr(error, " (mote doctor"); // which is here
        say(verdict, "The run ended early: %.*s.", (int)(advice ? (size_t)(advice - error) : strlen(error)), error);
    }
}

// ---- what leaves F16

// The lines of a kind together.
static struct doctor_line sum_kind(const struct doctor_report *report, const char *kind)
{
    struct doctor_line sum = {.kind = kind};
    for (size_t i = 0; i < report->n_lines; i++) {
        const struct doctor_line *line = &report->lines[i];
        if (strcmp(line->kind, kind) == 0) {
            sum.tensor = line->tensor;
            sum.source = line->source;
            sum.n_rows += line->n_rows;
            sum.n_over += line->n_over;
            sum.largest = line->largest > sum.largest ? line->largest : sum.largest;
            sum.exponent = line->exponent > sum.exponent ? line->exponent : sum.exponent;
        }
    }
    return sum;
}

static void judge_kind(const struct doctor_report *report, const char *kind, json_t *verdict)
{
    struct doctor_line sum = sum_kind(report, kind);
    struct layers_text layers = doctor_layers_over(report, kind);
    say(verdict, "%s%s leave F16 in %s%s: %.3g%% of all rows, up to %.2g, which 2^-%d brings back.",
        sum.tensor ? "Sources of " : "The cache's ", kind, layers.text[0] ? "layers " : "the model's end", layers.text,
        100 * sum.n_over / sum.n_rows, sum.largest, sum.exponent);
}

// How mote holds what leaves F16, by what it rounds to: said once for all kinds of which it is so.
static const struct remedy {
    const char *source; // NULL: of the cache
    const char *words;
} remedies[] = {
    {"f16", "mote rounds the sources of %s to F16 too, but first divides each part of a row that does not fit by a "
            "power of two, and "
            "multiplies its sums by it again, which is exact: no option is needed."},
    {"q8", "mote rounds the sources of %s to Q8 with scales in F32, which hold all of these magnitudes: no option is "
           "needed."},
    {"f32", "mote keeps the sources of %s in F32: no option is needed."},
    {NULL,
     "mote's F16 cache divides rows of %s by a power of two when it stores them, and keeps that beside the row: no "
     "option is needed."},
};

static bool has_remedy(const struct doctor_line *line, const struct remedy *remedy)
{
    return remedy->source ? line->tensor && strcmp(line->source, remedy->source) == 0 : !line->tensor;
}

// Whether no line before it has rows beyond F16 and is of its kind.
static bool is_first_over(const struct doctor_report *report, size_t at)
{
    for (size_t i = 0; i < at; i++) {
        if (report->lines[i].n_over > 0 && strcmp(report->lines[i].kind, report->lines[at].kind) == 0) {
            return false;
        }
    }
    return report->lines[at].n_over > 0;
}

static void judge_remedy(const struct doctor_report *report, const struct remedy *remedy, json_t *verdict)
{
    char kinds[256] = "";
    size_t size = 0;
    for (size_t i = 0; i < report->n_lines && size < sizeof kinds; i++) {
        const struct doctor_line *line = &report->lines[i];
        if (has_remedy(line, remedy) && is_first_over(report, i)) {
            size += (size_t)snprintf(kinds + size, sizeof kinds - size, "%s%s", size ? ", " : "", line->kind);
        }
    }
    const char *place = strstr(remedy->words, "%s");
    if (size > 0 && place) {
        say(verdict, "%.*s%s%s", (int)(place - remedy->words), remedy->words, kinds, place + 2);
    }
}

// Other engines' blocks of 8-bit sources may carry their scale and sum in F16.
static void judge_blocks(const struct doctor_report *report, json_t *verdict)
{
    double largest = 0;
    for (size_t i = 0; i < report->n_lines; i++) {
        const struct doctor_line *line = &report->lines[i];
        if (line->tensor && line->n_over > 0 && strcmp(line->source, "q8") == 0) {
            largest = line->largest > largest ? line->largest : largest;
        }
    }
    if (largest > 0) {
        say(verdict, "%s",
            largest >= 127 * HALF_LIMIT
                ? "Engines whose Q8 blocks have scales in F16 overflow there as well."
                : "Engines whose Q8 blocks carry their sums in F16 (for weights with minimums, such as "
                  "q4_1) may overflow there as well.");
    }
}

static bool judge_ranges(const struct doctor_report *report, json_t *verdict)
{
    bool any = false;
    for (size_t i = 0; i < report->n_lines; i++) {
        if (is_first_over(report, i)) {
            judge_kind(report, report->lines[i].kind, verdict);
            any = true;
        }
    }
    if (any) {
        say(verdict,
            "An engine that rounds such a row to F16 as it is gets infinity there, and answers NaN or nonsense.");
        for (size_t i = 0; i < sizeof remedies / sizeof remedies[0]; i++) {
            judge_remedy(report, &remedies[i], verdict);
        }
        judge_blocks(report, verdict);
    }
    return any;
}

// ---- routers

static void judge_routers(const struct doctor_report *report, json_t *verdict)
{
    const json_t *routers = json_object_get(report->json, "routers"), *router;
    size_t n = 0, n_layers = 0, n_experts = 0, i;
    double n_picks = 0;
    int first_layer = -1;
    json_array_foreach(routers, i, router)
    {
        const json_t *picks = json_object_get(router, "picks"), *count;
        size_t never = json_array_size(json_object_get(router, "never_picked")), e;
        first_layer =
            never && first_layer < 0 ? (int)json_integer_value(json_object_get(router, "layer")) : first_layer;
        n += never;
        n_layers += never > 0;
        n_experts += json_array_size(picks);
        json_array_foreach(picks, e, count)
        {
            n_picks += json_number_value(count);
        }
    }
    if (n > 0) {
        bool few = n_picks < 30 * (double)n_experts;
        say(verdict,
            "The router never picked some experts in %zu of %zu layers with experts, first in layer %d: %zu of %zu in "
            "all "
            "(--json lists them). %s",
            n_layers, json_array_size(routers), first_layer, n, n_experts,
            few ? "The text is short for so many: a longer one (-f) tells more."
                : "With this many tokens that means a router that has collapsed, or a text of one kind.");
    }
}

json_t *doctor_verdict(const struct doctor_report *report)
{
    json_t *verdict = json_array();
    judge_weights(report, verdict);
    judge_finite(report, verdict);
    bool sick = json_array_size(verdict) > 0;
    const struct doctor_line *largest = doctor_largest(report, -2);
    if (!judge_ranges(report, verdict) && largest && !sick) {
        char layer[32] = "";
        if (largest->layer >= 0) {
            snprintf(layer, sizeof layer, " of layer %d", largest->layer);
        }
        say(verdict, "Nothing leaves F16 with this text: the largest magnitude is %.3g (%s%s), %.2g%% of 65504.",
            largest->largest, largest->kind, layer, 100 * largest->largest / 65504);
    }
    judge_routers(report, verdict);
    return verdict;
}
