// Files: read at offsets, never mapped, so that a file cut short is a short read; written aside and renamed.
#ifndef MOTE_BASE_FILE_H
#define MOTE_BASE_FILE_H

#include "base/buffer.h"
#include "base/error.h"

#include <stddef.h>
#include <stdint.h>

struct file {
    int descriptor;
    uint64_t size; // bytes, when it was opened
    char *path;    // as given
};

// Opens a regular file to read. A directory, FIFO, socket or device is an error that says which (a FIFO does not
// block).
enum status file_open(struct file *file, const char *path, struct error *error);
void file_close(struct file *file);

// Reads exactly size bytes at offset. A file that is shorter by now is an error ("was cut short while being read").
// May be called from several threads at once.
enum status file_read(const struct file *file, uint64_t offset, void *bytes, size_t size, struct error *error);

// The whole of a file ("-": standard input; pipes are allowed here) of at most limit bytes, appended to buffer.
enum status file_read_all(const char *path, size_t limit, struct buffer *buffer, struct error *error);

// A file that is being written: bytes go to a temporary file beside path, which gets its name at commit.
// Where path is an existing non-regular file (/dev/stdout, a pipe), the bytes go straight there.
struct file_writer {
    int descriptor;
    char *path;
    char *temporary; // NULL: written straight
    uint64_t offset; // bytes written so far
    struct buffer pending;
};

enum status file_writer_open(struct file_writer *writer, const char *path, struct error *error);
enum status file_writer_write(struct file_writer *writer, const void *bytes, size_t size, struct error *error);
// Flushes, syncs and renames; closes the writer whatever happens.
enum status file_writer_commit(struct file_writer *writer, struct error *error);
// Drops what was written; closes the writer. Harmless on a closed writer (of zeros).
void file_writer_abort(struct file_writer *writer);

#endif
