#include "engine/identity.h"

enum status identity_of(const struct gguf *gguf, struct identity *identity, struct error *error)
{
    identity->bytes = gguf->size;
    enum status status = gguf_fingerprint(gguf, &identity->header, error);
    return status == STATUS_OK ? gguf_sample_weights(gguf, &identity->weights, error) : status;
}

enum status identity_of_file(const char *path, struct identity *identity, struct error *error)
{
    struct gguf *gguf = NULL;
    enum status status = gguf_open(path, &gguf, error);
    if (status == STATUS_OK)
        status = identity_of(gguf, identity, error);
    gguf_close(gguf);
    return status;
}

enum status identity_check(const char *path, const struct identity *own, const struct identity *first,
                           struct error *error)
{
    if (own->bytes != first->bytes)
        return error_set(error, STATUS_INVALID,
                         "'%s' is another file than rank 0's: it has %llu bytes, rank 0's has %llu", path,
                         (unsigned long long)own->bytes, (unsigned long long)first->bytes);
    if (own->header != first->header)
        return error_set(error, STATUS_INVALID,
                         "'%s' is another file than rank 0's: the hash of its header is %016llx, rank 0's is %016llx",
                         path, (unsigned long long)own->header, (unsigned long long)first->header);
    if (own->weights != first->weights)
        return error_set(error, STATUS_INVALID,
                         "'%s' is another file than rank 0's: the hash of some of its weights is %016llx, rank 0's is "
                         "%016llx",
                         path, (unsigned long long)own->weights, (unsigned long long)first->weights);
    return STATUS_OK;
}
