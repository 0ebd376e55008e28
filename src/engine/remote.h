// Engines over ranks: rank 0 says what the others do, in a few commands.
#ifndef MOTE_ENGINE_REMOTE_H
#define MOTE_ENGINE_REMOTE_H

#include "engine/engine.h"
#include "mesh/ranks.h"

// Rank 0: an engine with these settings is to be made. All then know that they have the same model and the same mote.
enum status remote_begin_engine(struct ranks *ranks, const struct mote_model *model,
                                const struct engine_settings *settings, struct error *error);
// Memory for the words of a run of this engine, on every rank.
enum status remote_allocate(struct mote_engine *engine, struct error *error);
void remote_free(struct mote_engine *engine);
// Rank 0: this run is to be made.
enum status remote_send_run(struct mote_engine *engine, const struct run *run, struct error *error);
// Rank 0: this page is copied, which takes all ranks.
enum status remote_send_kv(struct mote_engine *engine, const struct kv_page *page, bool write, struct error *error);
// Rank 0: the engine is no more.
void remote_end_engine(struct ranks *ranks);

// status on all ranks of an engine; where it has none, status.
static inline enum status remote_agree(struct ranks *ranks, enum status status, struct error *error)
{
    return ranks == NULL ? status : ranks_agree(ranks, status, error);
}

#endif
