// The report as a picture: log2 of the largest magnitude by layer, a line per kind, the F16 limit marked.
#include "doctor.h"

#include <math.h>
#include <string.h>

enum { LEFT = 56, TOP = 96, PLOT_HEIGHT = 320, LEGEND = 190, LINE_HEIGHT = 18, KINDS_MAX = 24 };

struct chart {
    FILE *out;
    const struct doctor_report *report;
    const char *kinds[KINDS_MAX];
    size_t n_kinds;
    double low, high; // log2 at the bottom and the top
    double width;     // of the plot, in pixels
    double step;      // of a layer
};

// Distinct in hue, and in lightness where hues repeat.
static const char *const colours[] = {"#1b6ca8", "#d9822b", "#3a8f5c", "#8a4fa3", "#7a5c3e", "#c2528b",
                                      "#5b7083", "#9a9a1f", "#2aa5a0", "#6677cc", "#a05050", "#44aa44"};
enum { N_COLOURS = sizeof colours / sizeof colours[0] };

static void print_xml(FILE *out, const char *text, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        unsigned char byte = (unsigned char)text[i];
        switch (byte) {
        case '<':
            fputs("&lt;", out);
            break;
        case '>':
            fputs("&gt;", out);
            break;
        case '&':
            fputs("&amp;", out);
            break;
        case '"':
            fputs("&quot;", out);
            break;
        default:
            fputc(byte < 0x20 || byte == 0x7f ? '?' : byte, out); // XML has no control characters
        }
    }
}

static double place_x(const struct chart *chart, int layer)
{
    return LEFT + (layer + 0.5) * chart->step;
}

static double place_y(const struct chart *chart, double power)
{
    power = power < chart->low ? chart->low : power;
    return TOP + PLOT_HEIGHT * (chart->high - power) / (chart->high - chart->low);
}

// Kinds in the order in which the model has them; those of the model's end have no layer to be drawn at.
static void find_kinds(struct chart *chart)
{
    double least = 1e9, most = -1e9;
    for (size_t i = 0; i < chart->report->n_lines; i++) {
        const struct doctor_line *line = &chart->report->lines[i];
        size_t k = 0;
        while (k < chart->n_kinds && strcmp(chart->kinds[k], line->kind) != 0) {
            k++;
        }
        if (k == chart->n_kinds && k < KINDS_MAX && line->layer >= 0) {
            chart->kinds[chart->n_kinds++] = line->kind;
        }
        double power = line->largest > 0 ? log2(line->largest) : 0;
        least = power < least ? power : least;
        most = power > most ? power : most;
    }
    chart->low = least < 0 ? floor(least < -12 ? -12 : least) : 0;
    chart->high = most > 18 ? ceil(most) + 1 : 18;
}

static void draw_axes(const struct chart *chart)
{
    FILE *out = chart->out;
    double right = LEFT + chart->width, bottom = TOP + PLOT_HEIGHT;
    double limit = place_y(chart, 16); // 65520 is within a thousandth of it
    int every = chart->high - chart->low > 40 ? 8 : 4;
    fprintf(out, "<rect x=\"%d\" y=\"%d\" width=\"%.1f\" height=\"%.1f\" fill=\"#fbeaea\"/>\n", LEFT, TOP, chart->width,
            limit - TOP);
    for (int power = (int)chart->low; power <= (int)chart->high; power++) {
        if (power % every != 0) {
            continue;
        }
        double y = place_y(chart, power);
        fprintf(out, "<line x1=\"%d\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"#e2e2e2\"/>\n", LEFT, y, right, y);
        fprintf(out, "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">2^%d</text>\n", LEFT - 6, y + 4, power);
    }
    fprintf(out,
            "<line x1=\"%d\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"#c62828\" stroke-width=\"1.5\" "
            "stroke-dasharray=\"6 4\"/>\n<text x=\"%.1f\" y=\"%d\" fill=\"#c62828\" text-anchor=\"end\">- - F16 ends: "
            "65504</text>\n",
            LEFT, limit, right, limit, right, TOP - 10);
    int skip = chart->report->n_layers > 40 ? 5 : chart->report->n_layers > 20 ? 2 : 1;
    for (int layer = 0; layer < chart->report->n_layers; layer += skip) {
        fprintf(out, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">%d</text>\n", place_x(chart, layer),
                bottom + 16, layer);
    }
    fprintf(out, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">layer</text>\n", LEFT + chart->width / 2,
            bottom + 34);
    fprintf(out, "<rect x=\"%d\" y=\"%d\" width=\"%.1f\" height=\"%d\" fill=\"none\" stroke=\"#888\"/>\n", LEFT, TOP,
            chart->width, PLOT_HEIGHT);
}

static void draw_points(const struct chart *chart, const char *kind, const char *colour)
{
    for (size_t i = 0; i < chart->report->n_lines; i++) {
        const struct doctor_line *line = &chart->report->lines[i];
        if (line->layer < 0 || strcmp(line->kind, kind) != 0) {
            continue;
        }
        double x = place_x(chart, line->layer), y = place_y(chart, line->largest > 0 ? log2(line->largest) : -1e9);
        bool over = line->n_over > 0;
        fprintf(chart->out, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"%s\" fill=\"%s\"%s><title>layer %d, ", x, y,
                over ? "4.5" : "2.5", colour, over ? " stroke=\"#c62828\" stroke-width=\"2\"" : "", line->layer);
        print_xml(chart->out, kind, strlen(kind));
        fprintf(chart->out, ": largest %.4g, %.0f of %.0f rows beyond F16</title></circle>\n", line->largest,
                line->n_over, line->n_rows);
    }
}

static void draw_kind(const struct chart *chart, size_t index)
{
    const char *kind = chart->kinds[index], *colour = colours[index % N_COLOURS];
    const char *begin = "M";
    double y = TOP + 8 + (double)index * LINE_HEIGHT, x = LEFT + chart->width + 18;
    fputs("<path d=\"", chart->out);
    for (size_t i = 0; i < chart->report->n_lines; i++) {
        const struct doctor_line *line = &chart->report->lines[i];
        if (line->layer >= 0 && strcmp(line->kind, kind) == 0) {
            fprintf(chart->out, "%s%.1f %.1f", begin, place_x(chart, line->layer),
                    place_y(chart, line->largest > 0 ? log2(line->largest) : -1e9));
            begin = "L";
        }
    }
    fprintf(chart->out, "\" fill=\"none\" stroke=\"%s\" stroke-width=\"1.5\"%s/>\n", colour,
            index >= N_COLOURS ? " stroke-dasharray=\"2 2\"" : "");
    draw_points(chart, kind, colour);
    fprintf(chart->out, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"4\" fill=\"%s\"/><text x=\"%.1f\" y=\"%.1f\">", x, y,
            colour, x + 10, y + 4);
    print_xml(chart->out, kind, strlen(kind));
    fputs("</text>\n", chart->out);
}

// One sentence, broken at blanks; returns the lines it took. draw: false only counts.
static int draw_sentence(const struct chart *chart, const char *text, double y, int columns, bool draw)
{
    int lines = 0;
    while (*text) {
        size_t size = strlen(text), fits = size;
        if (size > (size_t)columns) {
            fits = (size_t)columns;
            while (fits > 1 && text[fits] != ' ') {
                fits--;
            }
            fits = fits > 1 ? fits : strcspn(text, " ");
        }
        if (draw) {
            fprintf(chart->out, "<text x=\"16\" y=\"%.1f\">", y + lines * LINE_HEIGHT);
            print_xml(chart->out, text, fits);
            fputs("</text>\n", chart->out);
        }
        text += fits + (text[fits] == ' ');
        lines++;
    }
    return lines;
}

static int draw_verdict(const struct chart *chart, double y, int columns, bool draw)
{
    const json_t *sentence;
    size_t i;
    int lines = 0;
    json_array_foreach(json_object_get(chart->report->json, "verdict"), i, sentence)
    {
        lines += draw_sentence(chart, json_string_value(sentence), y + lines * LINE_HEIGHT, columns, draw);
    }
    return lines;
}

static void draw_title(const struct chart *chart)
{
    const json_t *json = chart->report->json;
    const char *path = json_string_value(json_object_get(json, "model"));
    const char *name = json_string_value(json_object_get(json, "name"));
    const char *architecture = json_string_value(json_object_get(json, "architecture"));
    const char *slash = path ? strrchr(path, '/') : NULL, *file = slash ? slash + 1 : path ? path : "";
    fputs("<text x=\"16\" y=\"28\" font-size=\"17\" font-weight=\"bold\">", chart->out);
    print_xml(chart->out, file, strlen(file));
    fputs("</text>\n<text x=\"16\" y=\"50\" fill=\"#555\">", chart->out);
    if (name && name[0]) {
        print_xml(chart->out, name, strlen(name));
        fputs(", ", chart->out);
    }
    print_xml(chart->out, architecture ? architecture : "", architecture ? strlen(architecture) : 0);
    fprintf(
        chart->out,
        ", %lld tokens (mote doctor)</text>\n<text x=\"%d\" y=\"%d\">Largest magnitude that goes into a product or the "
        "KV cache</text>\n",
        (long long)json_integer_value(json_object_get(json, "tokens")), LEFT, TOP - 10);
}

bool doctor_write_svg(const struct doctor_report *report, FILE *out)
{
    struct chart chart = {.out = out, .report = report, .step = report->n_layers > 60 ? 10 : 16};
    chart.width = report->n_layers * chart.step;
    chart.width = chart.width < 480 ? 480 : chart.width;
    chart.step = chart.width / (report->n_layers > 0 ? report->n_layers : 1);
    find_kinds(&chart);
    double width = LEFT + chart.width + LEGEND, verdict = TOP + PLOT_HEIGHT + 64;
    double legend = TOP + (double)chart.n_kinds * LINE_HEIGHT + 24;
    verdict = legend > verdict ? legend : verdict;
    int columns = (int)((width - 32) / 6.3);
    double height = verdict + draw_verdict(&chart, 0, columns, false) * LINE_HEIGHT + 4;
    fprintf(out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" viewBox=\"0 0 %.0f %.0f\" "
            "font-family=\"Helvetica, Arial, sans-serif\" font-size=\"12\">\n<rect width=\"100%%\" height=\"100%%\" "
            "fill=\"white\"/>\n",
            width, height, width, height);
    draw_title(&chart);
    draw_axes(&chart);
    for (size_t k = 0; k < chart.n_kinds; k++) {
        draw_kind(&chart, k);
    }
    draw_verdict(&chart, verdict, columns, true);
    fputs("</svg>\n", out);
    return !ferror(out);
}
