// Files: positional reads from regular files only, and writing aside with a rename at the end.
#include "base/file.h"

#include "base/checked.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { IO_PIECE = 1 << 30, READ_ALL_PIECE = 1 << 16, WRITE_PIECE = 1 << 18 };

static const char *kind_of(mode_t mode)
{
    static const struct {
        mode_t mode;
        const char *name;
    } kinds[] = {{S_IFDIR, "a directory"},        {S_IFIFO, "a FIFO (a named pipe)"}, {S_IFSOCK, "a socket"},
                 {S_IFCHR, "a character device"}, {S_IFBLK, "a block device"},        {S_IFREG, "a regular file"}};
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        if ((mode & S_IFMT) == kinds[i].mode)
            return kinds[i].name;
    return "no regular file";
}

static enum status not_regular(struct error *error, const char *path, mode_t mode)
{
    return error_set(error, STATUS_INVALID, "'%s' is %s: give the path of a regular file", path, kind_of(mode));
}

enum status file_open(struct file *file, const char *path, struct error *error)
{
    *file = (struct file){.descriptor = -1};
    struct stat info;
    if (stat(path, &info) != 0)
        return error_system(error, errno, "cannot open '%s'", path);
    if (!S_ISREG(info.st_mode)) // before it is opened: opening a device may do something
        return not_regular(error, path, info.st_mode);
    int descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); // nonblocking: it may be a FIFO by now
    if (descriptor < 0)
        return error_system(error, errno, "cannot open '%s'", path);
    enum status status = STATUS_OK;
    if (fstat(descriptor, &info) != 0)
        status = error_system(error, errno, "cannot open '%s'", path);
    else if (!S_ISREG(info.st_mode))
        status = not_regular(error, path, info.st_mode);
    char *copy = status == STATUS_OK ? strdup(path) : NULL;
    if (status == STATUS_OK && !copy)
        status = error_memory(error, "a file's name");
    if (status != STATUS_OK) {
        close(descriptor);
        return status;
    }
    *file = (struct file){.descriptor = descriptor, .size = (uint64_t)info.st_size, .path = copy};
    return STATUS_OK;
}

void file_close(struct file *file)
{
    if (file->path) // of an open file only: a struct of zeros holds descriptor 0
        close(file->descriptor);
    free(file->path);
    *file = (struct file){.descriptor = -1};
}

enum status file_read(const struct file *file, uint64_t offset, void *bytes, size_t size, struct error *error)
{
    uint64_t end;
    if (!checked_add(offset, size, &end) || end > INT64_MAX)
        return error_set(error, STATUS_INVALID, "'%s': a read at offset %llu is beyond what a file can be", file->path,
                         (unsigned long long)offset);
    unsigned char *out = bytes;
    while (size) {
        ssize_t got = pread(file->descriptor, out, size < IO_PIECE ? size : IO_PIECE, (off_t)offset);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return error_system(error, errno, "cannot read '%s' at offset %llu", file->path,
                                (unsigned long long)offset);
        if (got == 0)
            return error_set(error, STATUS_IO,
                             "'%s' was cut short while being read: it had %llu bytes when it was opened and ends at "
                             "%llu or before; fetch or copy it again",
                             file->path, (unsigned long long)file->size, (unsigned long long)offset);
        out += got;
        offset += (uint64_t)got;
        size -= (size_t)got;
    }
    return STATUS_OK;
}

static enum status read_stream(int descriptor, const char *name, size_t limit, struct buffer *buffer,
                               struct error *error)
{
    size_t total = 0;
    for (;;) {
        size_t piece = limit - total < READ_ALL_PIECE ? limit - total + 1 : READ_ALL_PIECE;
        if (!buffer_reserve(buffer, piece))
            return error_memory(error, "the content of a file");
        ssize_t got = read(descriptor, buffer->data + buffer->size, piece);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return error_system(error, errno, "cannot read '%s'", name);
        if (got == 0)
            return STATUS_OK;
        total += (size_t)got;
        if (total > limit)
            return error_set(error, STATUS_INVALID, "'%s' has more than %zu bytes, the most that are read here", name,
                             limit);
        buffer->size += (size_t)got;
        buffer->data[buffer->size] = '\0';
    }
}

enum status file_read_all(const char *path, size_t limit, struct buffer *buffer, struct error *error)
{
    if (limit > SIZE_MAX / 2)
        limit = SIZE_MAX / 2;
    if (!buffer_reserve(buffer, 0))
        return error_memory(error, "the content of a file");
    if (strcmp(path, "-") == 0)
        return read_stream(STDIN_FILENO, "standard input", limit, buffer, error);
    int descriptor = open(path, O_RDONLY | O_CLOEXEC);
    if (descriptor < 0)
        return error_system(error, errno, "cannot open '%s'", path);
    enum status status = read_stream(descriptor, path, limit, buffer, error);
    close(descriptor);
    return status;
}

// Opens a new file beside writer->path. Its mode is that of the file it will replace, else what the umask leaves.
static enum status open_temporary(struct file_writer *writer, const struct stat *old, struct error *error)
{
    for (int attempt = 0; attempt < 100; attempt++) {
        struct timespec now;
        clock_gettime(CLOCK_REALTIME, &now);
        struct buffer name = {0};
        buffer_append_format(&name, "%s.%ld-%ld.tmp", writer->path, (long)getpid(), now.tv_nsec);
        if (name.failed)
            return error_memory(error, "a file's name");
        writer->descriptor = open(name.data, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (writer->descriptor >= 0) {
            writer->temporary = name.data;
            if (old)
                (void)!fchmod(writer->descriptor, old->st_mode & 0777); // its absence harms nobody
            return STATUS_OK;
        }
        int number = errno;
        buffer_free(&name);
        if (number != EEXIST)
            return error_system(error, number, "cannot write '%s'", writer->path);
    }
    return error_set(error, STATUS_IO, "cannot write '%s': no free name for a temporary file beside it", writer->path);
}

enum status file_writer_open(struct file_writer *writer, const char *path, struct error *error)
{
    *writer = (struct file_writer){.descriptor = -1};
    struct stat info;
    bool exists = stat(path, &info) == 0;
    if (exists && S_ISDIR(info.st_mode))
        return error_set(error, STATUS_INVALID, "cannot write '%s': it is a directory", path);
    bool regular = exists && S_ISREG(info.st_mode);
    errno = 0;
    writer->path = regular ? realpath(path, NULL) : strdup(path); // a link stays, and what it points to is replaced
    if (!writer->path)
        return error_system(error, errno ? errno : ENOMEM, "cannot write '%s'", path);
    enum status status = STATUS_OK;
    if (exists && !regular) {
        writer->descriptor = open(path, O_WRONLY | O_CLOEXEC);
        if (writer->descriptor < 0)
            status = error_system(error, errno, "cannot write '%s'", path);
    } else {
        status = open_temporary(writer, regular ? &info : NULL, error);
    }
    if (status != STATUS_OK)
        file_writer_abort(writer);
    return status;
}

static enum status write_bytes(struct file_writer *writer, const char *bytes, size_t size, struct error *error)
{
    while (size) {
        ssize_t put = write(writer->descriptor, bytes, size < IO_PIECE ? size : IO_PIECE);
        if (put < 0 && errno == EINTR)
            continue;
        if (put < 0)
            return error_system(error, errno, "cannot write '%s'", writer->path);
        bytes += put;
        size -= (size_t)put;
    }
    return STATUS_OK;
}

static enum status flush(struct file_writer *writer, struct error *error)
{
    enum status status = write_bytes(writer, writer->pending.data, writer->pending.size, error);
    writer->pending.size = 0;
    return status;
}

enum status file_writer_write(struct file_writer *writer, const void *bytes, size_t size, struct error *error)
{
    if (writer->pending.size + size > WRITE_PIECE) {
        enum status status = flush(writer, error);
        if (status == STATUS_OK && size >= WRITE_PIECE) {
            writer->offset += size;
            return write_bytes(writer, bytes, size, error);
        }
        if (status != STATUS_OK)
            return status;
    }
    if (!buffer_append(&writer->pending, bytes, size))
        return error_memory(error, "a file's buffer");
    writer->offset += size;
    return STATUS_OK;
}

enum status file_writer_commit(struct file_writer *writer, struct error *error)
{
    enum status status = flush(writer, error);
    if (status == STATUS_OK && writer->temporary && fsync(writer->descriptor) != 0)
        status = error_system(error, errno, "cannot write '%s'", writer->path);
    int descriptor = writer->descriptor;
    writer->descriptor = -1;
    if (close(descriptor) != 0 && status == STATUS_OK && errno != EINTR)
        status = error_system(error, errno, "cannot write '%s'", writer->path);
    if (status == STATUS_OK && writer->temporary) {
        if (rename(writer->temporary, writer->path) != 0) {
            status = error_system(error, errno, "cannot give '%s' its name", writer->path);
        } else {
            free(writer->temporary);
            writer->temporary = NULL;
        }
    }
    file_writer_abort(writer);
    return status;
}

void file_writer_abort(struct file_writer *writer)
{
    if (writer->path && writer->descriptor >= 0)
        close(writer->descriptor);
    if (writer->temporary)
        unlink(writer->temporary);
    free(writer->temporary);
    free(writer->path);
    buffer_free(&writer->pending);
    *writer = (struct file_writer){.descriptor = -1};
}
