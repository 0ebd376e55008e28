// The report of mote doctor: doctor.c gathers it, the other files weigh and show it.
#ifndef MOTE_CLI_DOCTOR_H
#define MOTE_CLI_DOCTOR_H

#include "compute.h"
#include "mote.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#define HALF_LIMIT 65520.0 // the least magnitude that rounds to infinity in F16

// What was seen of the source of one weight, or of the keys or values of one layer. Texts belong to the report's JSON.
struct doctor_line {
    const char *kind;   // "ffn_down", "keys"
    const char *tensor; // NULL: keys or values
    const char *source; // what mote rounds it to by default; keys and values: "f16"
    int layer;          // -1: of none
    double n_rows, n_over, n_not_finite;
    double largest;
    int exponent;
};

struct doctor_report {
    json_t *json; // all of it, as --json prints it
    struct doctor_line *lines;
    size_t n_lines;
    int n_layers;
};

// doctor_weights.c: every value of the file's tensors is read. {"tensors", "not_finite": [{"tensor", "nan",
// "infinite"}], "zero_experts": [{"tensor", "experts"}]}; NULL, with *error: it could not.
json_t *doctor_check_weights(mote_model *model, struct progress *progress, mote_error *error);

// doctor_verdict.c: sentences, a JSON array of texts.
json_t *doctor_verdict(const struct doctor_report *report);
// "3", "0-2, 7": the layers of the lines of a kind that have rows beyond F16.
struct layers_text {
    char text[160];
};
struct layers_text doctor_layers_over(const struct doctor_report *report, const char *kind);
// The line of the largest magnitude, of a layer (-1: of none of them) where it is not -2; NULL: there is none.
const struct doctor_line *doctor_largest(const struct doctor_report *report, int layer);

// doctor_print.c: for a person, on standard output.
void doctor_print(const struct doctor_report *report);
// doctor_svg.c: a picture of log2 of the magnitudes by layer. False: it could not be written.
bool doctor_write_svg(const struct doctor_report *report, FILE *out);

#endif
