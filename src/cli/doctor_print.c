// A report for a person: a bar per layer, the kinds of sources, what leaves F16, and the verdict.
#include "doctor.h"
#include "output.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { WIDTH_DEFAULT = 80, WIDTH_LEAST = 20, WIDTH_MOST = 160, BAR_LEAST = 10, LISTED = 40 };

struct page {
    int width; // characters of a line
    bool live; // a terminal that takes colours
};

static struct page find_page(void)
{
    struct page page = {.width = WIDTH_DEFAULT, .live = is_live_terminal(stdout)};
    struct winsize size;
    if (isatty(STDOUT_FILENO) && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) {
        page.width = size.ws_col;
    }
    page.width = page.width < WIDTH_LEAST ? WIDTH_LEAST : page.width > WIDTH_MOST ? WIDTH_MOST : page.width;
    return page;
}

// "2^17.3"; "0" for nothing.
static struct size_text power_text(double magnitude)
{
    struct size_text result;
    snprintf(result.text, sizeof result.text, magnitude > 0 ? "2^%.1f" : "%.0f", magnitude > 0 ? log2(magnitude) : 0);
    return result;
}

static struct size_text layer_text(int layer)
{
    struct size_text result = {"end"};
    if (layer >= 0) {
        snprintf(result.text, sizeof result.text, "%d", layer);
    }
    return result;
}

// ---- bars

struct scale {
    int width;  // of a bar
    double top; // log2 at its end
    int limit;  // the character of the F16 limit
};

static struct scale find_scale(const struct doctor_report *report, int width)
{
    const struct doctor_line *largest = doctor_largest(report, -2);
    double top = largest && largest->largest > 0 ? ceil(log2(largest->largest)) : 0;
    struct scale scale = {.width = width, .top = top < 20 ? 20 : top};
    scale.limit = (int)(16 / scale.top * width);
    return scale;
}

static void print_bar(const struct scale *scale, double magnitude, bool live)
{
    double power = magnitude > 0 ? log2(magnitude) : 0;
    int length = (int)lround(power / scale->top * scale->width);
    length = power > 0 && length < 1 ? 1 : length;
    bool over = magnitude >= HALF_LIMIT;
    length = over && length <= scale->limit ? scale->limit + 1 : !over && length > scale->limit ? scale->limit : length;
    for (int i = 0; i < scale->width; i++) {
        if (i == scale->limit) {
            fputs(over && live ? "\x1b[31m" : "", stdout);
            putchar(over ? '#' : '|');
        } else {
            putchar(i < length ? '#' : ' ');
        }
    }
    fputs(over && live ? "\x1b[0m" : "", stdout);
}

static void print_bars(const struct doctor_report *report, const struct page *page)
{
    int kinds = 4, rest; // the longest name of a kind
    for (int layer = -1; layer < report->n_layers; layer++) {
        const struct doctor_line *line = doctor_largest(report, layer);
        int length = line ? (int)strlen(line->kind) : 0;
        kinds = length > kinds ? length : kinds;
    }
    rest = page->width - 1 - (5 + 2 + 2 + 7 + 2 + kinds);
    struct scale scale = find_scale(report, rest);
    printf("Largest magnitude of each layer%s\n",
           rest < BAR_LEAST ? "" : " (bars: log2; F16 ends at 2^16, the | in them)");
    for (int i = 0; i <= report->n_layers; i++) {
        int layer = i == report->n_layers ? -1 : i;
        const struct doctor_line *line = doctor_largest(report, layer);
        if (!line) {
            continue;
        }
        printf("%5s  ", layer_text(layer).text);
        if (rest >= BAR_LEAST) {
            print_bar(&scale, line->largest, page->live);
            fputs("  ", stdout);
        }
        printf("%-7s  %s%s\n", power_text(line->largest).text, line->kind,
               line->largest >= HALF_LIMIT && rest < BAR_LEAST ? " (beyond F16)" : "");
    }
}

// ---- tables

// All lines of a kind together; the layer is that of the largest.
static struct doctor_line gather_kind(const struct doctor_report *report, const char *kind)
{
    struct doctor_line sum = {.kind = kind, .layer = -1};
    for (size_t i = 0; i < report->n_lines; i++) {
        const struct doctor_line *line = &report->lines[i];
        if (strcmp(line->kind, kind) != 0) {
            continue;
        }
        sum.layer = !sum.source || line->largest > sum.largest ? line->layer : sum.layer;
        sum.source = line->source;
        sum.n_rows += line->n_rows;
        sum.n_over += line->n_over;
        sum.n_not_finite += line->n_not_finite;
        sum.largest = line->largest > sum.largest ? line->largest : sum.largest;
        sum.exponent = line->exponent > sum.exponent ? line->exponent : sum.exponent;
    }
    return sum;
}

static bool is_first_of_kind(const struct doctor_report *report, size_t at)
{
    for (size_t i = 0; i < at; i++) {
        if (strcmp(report->lines[i].kind, report->lines[at].kind) == 0) {
            return false;
        }
    }
    return true;
}

static void print_share(double part, double all)
{
    printf("%.0f of %.0f", part, all);
    if (part > 0) {
        printf(" (%.3g%%)", 100 * part / all);
    }
}

static void print_kinds(const struct doctor_report *report)
{
    printf("\nBy kind%*slargest      layer  rows beyond F16\n", 13, "");
    for (size_t i = 0; i < report->n_lines; i++) {
        if (!is_first_of_kind(report, i)) {
            continue;
        }
        struct doctor_line sum = gather_kind(report, report->lines[i].kind);
        printf("  %-18s%-12.4g  %-5s  ", sum.kind, sum.largest, layer_text(sum.layer).text);
        print_share(sum.n_over, sum.n_rows);
        if (sum.n_not_finite > 0) {
            printf(", %.0f with NaN or infinity", sum.n_not_finite);
        }
        putchar('\n');
    }
}

static void print_over(const struct doctor_report *report)
{
    size_t n = 0;
    for (size_t i = 0; i < report->n_lines; i++) {
        n += report->lines[i].n_over > 0;
    }
    if (n == 0) {
        return;
    }
    printf("\nBeyond F16\n");
    size_t shown = 0;
    for (size_t i = 0; i < report->n_lines; i++) {
        const struct doctor_line *line = &report->lines[i];
        if (line->n_over == 0 || shown++ >= LISTED) {
            continue;
        }
        printf("%5s  %-18s", layer_text(line->layer).text, line->kind);
        print_share(line->n_over, line->n_rows);
        printf(" rows, up to %.3g: 2^-%d\n", line->largest, line->exponent);
    }
    if (n > LISTED) {
        printf("       … and %zu more (--json has all)\n", n - LISTED);
    }
}

// ---- texts

static void print_wrapped(const char *text, int width, int indent)
{
    int column = indent;
    printf("%*s", indent - 2, "");
    fputs("- ", stdout);
    for (const char *word = text; *word;) {
        size_t size = strcspn(word, " ");
        int characters = 0;
        for (size_t i = 0; i < size; i++) {
            characters += ((unsigned char)word[i] & 0xc0) != 0x80;
        }
        if (column > indent && column + 1 + characters > width) {
            printf("\n%*s", indent, "");
            column = indent;
        } else if (column > indent) {
            putchar(' ');
            column++;
        }
        print_escaped(stdout, word, size);
        column += characters;
        word += size + (word[size] == ' ');
    }
    putchar('\n');
}

void doctor_print(const struct doctor_report *report)
{
    struct page page = find_page();
    const char *model = json_string_value(json_object_get(report->json, "model"));
    const char *architecture = json_string_value(json_object_get(report->json, "architecture"));
    print_escaped(stdout, model ? model : "", model ? strlen(model) : 0);
    fputs(": ", stdout);
    print_escaped(stdout, architecture ? architecture : "", architecture ? strlen(architecture) : 0);
    printf(", %d layers; %lld tokens with sources in F32\n\n", report->n_layers,
           (long long)json_integer_value(json_object_get(report->json, "tokens")));
    print_bars(report, &page);
    print_kinds(report);
    print_over(report);
    fputs("\nVerdict\n", stdout);
    const json_t *sentence;
    size_t i;
    json_array_foreach(json_object_get(report->json, "verdict"), i, sentence)
    {
        print_wrapped(json_string_value(sentence), page.width - 1, 4);
    }
}
