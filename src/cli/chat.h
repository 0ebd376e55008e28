// A prompt as the tokens that a model wants to see: through its chat template, or as it is.
#ifndef MOTE_CLI_CHAT_H
#define MOTE_CLI_CHAT_H

#include "input.h"
#include "mote.h"

#include <stdbool.h>

bool chat_has_template(const mote_model *model);

// The tokens of one user message, rendered by the model's template with the beginning of an answer behind it. Special
// tokens are recognised only in what the template itself wrote. BOS comes first where the model wants it, once.
mote_status chat_tokenize(mote_model *model, const struct text *prompt, struct ids *ids, mote_error *error);

// The tokens of a prompt as it is. special: special tokens are recognised in it. BOS as above.
mote_status raw_tokenize(mote_model *model, const struct text *prompt, bool special, struct ids *ids,
                         mote_error *error);

#endif
