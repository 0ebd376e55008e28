// Writing GGUF through the public interface.
#include "engine/engine.h"

// The public handle is the inner writer itself.
static struct gguf_writer *inner_writer(mote_writer *writer)
{
    return (struct gguf_writer *)(void *)writer;
}

mote_status mote_writer_create(const char *path, mote_writer **writer, mote_error *error)
{
    struct gguf_writer *inner = NULL;
    enum status status = gguf_writer_create(path, &inner, inner_error(error));
    *writer = (mote_writer *)(void *)inner;
    return (mote_status)status;
}

mote_status mote_writer_add_string(mote_writer *writer, const char *key, const char *text, mote_error *error)
{
    return (mote_status)gguf_writer_add_string(inner_writer(writer), key, text, inner_error(error));
}

mote_status mote_writer_add_tensor(mote_writer *writer, const char *name, const char *dtype, uint32_t n_dims,
                                   const uint64_t *shape, mote_error *error)
{
    const struct dtype_desc *desc = dtype_find_name(dtype);
    if (desc == NULL)
        return (mote_status)error_set(inner_error(error), STATUS_INVALID, "there is no dtype '%s'", dtype);
    return (mote_status)gguf_writer_add_tensor(inner_writer(writer), name, desc->dtype, n_dims, shape,
                                               inner_error(error));
}

mote_status mote_writer_write(mote_writer *writer, const void *bytes, size_t size, mote_error *error)
{
    return (mote_status)gguf_writer_write(inner_writer(writer), bytes, size, inner_error(error));
}

mote_status mote_writer_finish(mote_writer *writer, mote_error *error)
{
    return (mote_status)gguf_writer_finish(inner_writer(writer), inner_error(error));
}

void mote_writer_abort(mote_writer *writer)
{
    gguf_writer_abort(inner_writer(writer));
}
