// How mote inspect shows things to people: tables of what mote_model_describe says. Text from a file is escaped.
#ifndef MOTE_CLI_INSPECT_PRINT_H
#define MOTE_CLI_INSPECT_PRINT_H

#include "mote.h"

#include <jansson.h>
#include <stddef.h>

// The context that params stand for.
size_t inspect_context(const mote_model *model, const mote_engine_params *params);
// about (MOTE_MODEL) may be NULL.
void inspect_print_summary(const char *path, const json_t *metadata, const json_t *about);
void inspect_print_memory(const mote_memory *memory, size_t n_context);
void inspect_print_tensors(const json_t *tensors);
void inspect_print_plan(const json_t *plan);

#endif
