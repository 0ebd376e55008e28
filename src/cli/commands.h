// The commands of the program, one file each.
#ifndef MOTE_CLI_COMMANDS_H
#define MOTE_CLI_COMMANDS_H

#include "options.h"

extern const struct command command_run;
extern const struct command command_inspect;
extern const struct command command_tokenize;
extern const struct command command_template;
extern const struct command command_logits;
extern const struct command command_perplexity;
extern const struct command command_doctor;
extern const struct command command_bench;

#endif
