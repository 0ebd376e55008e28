// Files: what is refused, short reads, writing aside.
#include "base/file.h"

#include "test_paths.h"

#include <cmocka.h>

#include <dirent.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

static char folder[64];

static int make_folder(void **state)
{
    (void)state;
    strcpy(folder, "/tmp/mote-file-test-XXXXXX");
    return mkdtemp(folder) && chdir(folder) == 0 ? 0 : -1;
}

static size_t count_files(void)
{
    size_t n = 0;
    DIR *directory = opendir(".");
    while (readdir(directory))
        n++;
    closedir(directory);
    return n - 2;
}

static int remove_folder(void **state)
{
    (void)state;
    return chdir("/") == 0 && rmdir(folder) == 0 ? 0 : -1; // fails where a test left a file behind
}

static void put(const char *path, const char *text)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0 && fclose(file) == 0);
}

static void expect_content(const char *path, const char *text)
{
    struct buffer content = {0};
    struct error error;
    assert_int_equal(file_read_all(path, 1 << 20, &content, &error), STATUS_OK);
    assert_string_equal(content.data, text);
    assert_int_equal(content.size, strlen(text));
    buffer_free(&content);
}

static void expect_refused(const char *path, enum status status, const char *word)
{
    struct file file;
    struct error error;
    assert_int_equal(file_open(&file, path, &error), status);
    assert_int_equal(error.status, status);
    if (!strstr(error.message, word) || !strstr(error.message, path))
        fail_msg("'%s' lacks '%s' or '%s'", error.message, word, path);
    file_close(&file); // harmless
}

static void test_refused(void **state)
{
    (void)state;
    expect_refused(".", STATUS_INVALID, "directory");
    expect_refused("/dev/null", STATUS_INVALID, "device");
    expect_refused("nosuch", STATUS_IO, "No such file");
    assert_int_equal(mkfifo("fifo", 0600), 0);
    expect_refused("fifo", STATUS_INVALID, "FIFO");
    unlink("fifo");
    int descriptor = socket(AF_UNIX, SOCK_STREAM, 0);
    struct sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = "socket"};
    assert_int_equal(bind(descriptor, (struct sockaddr *)&address, sizeof address), 0);
    expect_refused("socket", STATUS_INVALID, "socket");
    close(descriptor);
    unlink("socket");
    put("secret", "x");
    chmod("secret", 0);
    if (access("secret", R_OK) == 0)
        printf("skipped: a file without permission: root reads every file\n");
    else
        expect_refused("secret", STATUS_IO, "Permission denied");
    unlink("secret");
}

static void test_read(void **state)
{
    (void)state;
    struct file file;
    struct error error;
    char bytes[16];
    put("data", "0123456789");
    assert_int_equal(file_open(&file, "data", &error), STATUS_OK);
    assert_int_equal(file.size, 10);
    assert_int_equal(file_read(&file, 3, bytes, 4, &error), STATUS_OK);
    assert_memory_equal(bytes, "3456", 4);
    assert_int_equal(file_read(&file, 10, bytes, 0, &error), STATUS_OK);
    assert_int_equal(file_read(&file, UINT64_MAX - 2, bytes, 4, &error), STATUS_INVALID);
    assert_int_equal(truncate("data", 5), 0);
    assert_int_equal(file_read(&file, 3, bytes, 4, &error), STATUS_IO);
    assert_non_null(strstr(error.message, "cut short while being read"));
    file_close(&file);
    file_close(&file);
    unlink("data");
}

static void test_read_all(void **state)
{
    (void)state;
    struct buffer content = {0};
    struct error error;
    put("data", "0123456789");
    assert_int_equal(file_read_all("data", 10, &content, &error), STATUS_OK);
    assert_int_equal(file_read_all("data", 10, &content, &error), STATUS_OK); // appends
    assert_string_equal(content.data, "01234567890123456789");
    buffer_free(&content);
    assert_int_equal(file_read_all("data", 9, &content, &error), STATUS_INVALID);
    assert_non_null(strstr(error.message, "more than 9 bytes"));
    buffer_free(&content);
    assert_int_equal(file_read_all(".", 9, &content, &error), STATUS_IO);
    buffer_free(&content);
    put("data", "");
    expect_content("data", "");
    unlink("data");
}

static void test_write(void **state)
{
    (void)state;
    struct file_writer writer;
    struct error error;
    assert_int_equal(file_writer_open(&writer, "out", &error), STATUS_OK);
    assert_int_equal(file_writer_write(&writer, "abc", 3, &error), STATUS_OK);
    assert_int_equal(access("out", F_OK), -1); // not there before it is whole
    assert_int_equal(writer.offset, 3);
    assert_int_equal(file_writer_commit(&writer, &error), STATUS_OK);
    expect_content("out", "abc");
    file_writer_abort(&writer); // harmless

    assert_int_equal(chmod("out", 0640), 0);
    assert_int_equal(symlink("out", "link"), 0);
    assert_int_equal(file_writer_open(&writer, "link", &error), STATUS_OK);
    assert_int_equal(file_writer_write(&writer, "second", 6, &error), STATUS_OK);
    file_writer_abort(&writer);
    expect_content("out", "abc"); // nothing happened
    assert_int_equal(count_files(), 2);

    assert_int_equal(file_writer_open(&writer, "link", &error), STATUS_OK);
    static char large[3 << 20];
    memset(large, 'x', sizeof large);
    assert_int_equal(file_writer_write(&writer, "[", 1, &error), STATUS_OK);
    assert_int_equal(file_writer_write(&writer, large, sizeof large, &error), STATUS_OK);
    assert_int_equal(file_writer_write(&writer, "]", 1, &error), STATUS_OK);
    assert_int_equal(writer.offset, sizeof large + 2);
    assert_int_equal(file_writer_commit(&writer, &error), STATUS_OK);
    struct stat info;
    assert_int_equal(lstat("link", &info), 0);
    assert_true(S_ISLNK(info.st_mode)); // the link stays
    assert_int_equal(stat("out", &info), 0);
    assert_int_equal(info.st_size, sizeof large + 2);
    assert_int_equal(info.st_mode & 0777, 0640); // and so does the mode
    unlink("link");
    unlink("out");
    assert_int_equal(count_files(), 0);
}

static void test_write_refused(void **state)
{
    (void)state;
    struct file_writer writer;
    struct error error;
    assert_int_equal(file_writer_open(&writer, ".", &error), STATUS_INVALID);
    assert_int_equal(file_writer_open(&writer, "nosuch/out", &error), STATUS_IO);
    assert_non_null(strstr(error.message, "nosuch/out"));
    file_writer_abort(&writer);
    assert_int_equal(file_writer_open(&writer, "/dev/full", &error), STATUS_OK);
    assert_int_equal(file_writer_write(&writer, "abc", 3, &error), STATUS_OK);
    assert_int_equal(file_writer_commit(&writer, &error), STATUS_IO);
    assert_non_null(strstr(error.message, "No space left"));
    assert_int_equal(count_files(), 0);
}

static void test_write_pipe(void **state)
{
    (void)state;
    struct file_writer writer;
    struct error error;
    assert_int_equal(mkfifo("fifo", 0600), 0);
    int reader = open("fifo", O_RDONLY | O_NONBLOCK);
    assert_int_equal(file_writer_open(&writer, "fifo", &error), STATUS_OK);
    assert_null(writer.temporary);
    assert_int_equal(file_writer_write(&writer, "abc", 3, &error), STATUS_OK);
    assert_int_equal(file_writer_commit(&writer, &error), STATUS_OK);
    char bytes[4];
    assert_int_equal(read(reader, bytes, 4), 3);
    assert_memory_equal(bytes, "abc", 3);
    close(reader);
    unlink("fifo");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refused), cmocka_unit_test(test_read),          cmocka_unit_test(test_read_all),
        cmocka_unit_test(test_write),   cmocka_unit_test(test_write_refused), cmocka_unit_test(test_write_pipe),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
