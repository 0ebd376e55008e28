// Stands in for the chat templates until src/text has them.
#include "mote.h"

#include <stdio.h>

mote_status mote_template_render(mote_model *model, const char *source, size_t source_size, const char *input,
                                 size_t input_size, int64_t now, mote_rendered *rendered, mote_error *error)
{
    (void)model, (void)source, (void)source_size, (void)input, (void)input_size, (void)now, (void)rendered;
    error->status = MOTE_UNSUPPORTED;
    snprintf(error->message, sizeof error->message, "this build has no chat templates yet");
    return MOTE_UNSUPPORTED;
}

void mote_rendered_free(mote_rendered *rendered)
{
    (void)rendered;
}
