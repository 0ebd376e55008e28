// Whether two files on two hosts are the same one, without reading them whole.
#ifndef MOTE_ENGINE_IDENTITY_H
#define MOTE_ENGINE_IDENTITY_H

#include "gguf/gguf.h"

struct identity {
    uint64_t bytes;   // of all parts
    uint64_t header;  // hash of all before the weights
    uint64_t weights; // hash of a sample of them: two trainings of one model have one header
};

enum status identity_of(const struct gguf *gguf, struct identity *identity, struct error *error);
enum status identity_of_file(const char *path, struct identity *identity, struct error *error);
// STATUS_INVALID where this rank's file is not rank 0's.
enum status identity_check(const char *path, const struct identity *own, const struct identity *first,
                           struct error *error);

#endif
