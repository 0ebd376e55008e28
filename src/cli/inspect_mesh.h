// How mote inspect --plan --devices shows a mesh, and what it expects of one over given links.
#ifndef MOTE_CLI_INSPECT_MESH_H
#define MOTE_CLI_INSPECT_MESH_H

#include "mote.h"
#include "options.h"

#include <jansson.h>
#include <stdbool.h>

struct link {         // between each two devices
    double latency;   // seconds
    double bandwidth; // bytes a second
};
// "20us,25Gb/s"
bool inspect_parse_link(const char *value, struct link *link);
// What to expect of the mesh of a plan (MOTE_PLAN): {"prompt_tokens_per_second", …}. machine: the limits of one device.
// speed: measured tokens/s of one device with the whole model, prompt and then decode; empty: from the limits.
json_t *inspect_expect(const json_t *plan, const struct link *link, const mote_machine *machine,
                       const struct numbers *speed);
void inspect_print_mesh(const json_t *plan);

#endif
