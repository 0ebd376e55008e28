// Memory runs out at the n-th allocation, for every n: opening and writing GGUF files must fail cleanly (an error
// that says so, no leak, no file left) and succeed once nothing fails. Linked with --wrap for malloc and its kin.
#include "gguf/gguf.h"

#include "test_paths.h"

#include <cmocka.h>

#include "failing_heap.h"

static enum status open_file(struct error *error)
{
    struct gguf *gguf;
    enum status status = gguf_open(TEST_GGUF_BAD "/unknown_keys.gguf", &gguf, error);
    gguf_close(gguf);
    return status;
}

static enum status open_split(struct error *error)
{
    struct gguf *gguf;
    enum status status = gguf_open(TEST_GGUF_BAD "/split-00001-of-00003.gguf", &gguf, error);
    gguf_close(gguf);
    return status;
}

static char written[] = "/tmp/mote-memory-test-XXXXXX/written.gguf";
static char *const folder_end = written + sizeof "/tmp/mote-memory-test-XXXXXX" - 1;

static enum status write_file(struct error *error)
{
    struct gguf_writer *writer;
    enum status status = gguf_writer_create(written, &writer, error);
    if (status != STATUS_OK)
        return status;
    static float data[256];
    static const uint64_t ne[] = {256};
    status = gguf_writer_add_string(writer, "general.name", "x", error);
    if (status == STATUS_OK)
        status = gguf_writer_add_tensor(writer, "t", DTYPE_F32, 1, ne, error);
    if (status == STATUS_OK)
        status = gguf_writer_write(writer, data, sizeof data, error);
    if (status == STATUS_OK)
        return gguf_writer_finish(writer, error);
    gguf_writer_abort(writer);
    return status;
}

static void test_open(void **state)
{
    (void)state;
    exhaust(open_file);
}

static void test_open_split(void **state)
{
    (void)state;
    exhaust(open_split);
}

static void test_write(void **state)
{
    (void)state;
    *folder_end = '\0';
    assert_non_null(mkdtemp(written));
    *folder_end = '/';
    exhaust(write_file);
    assert_int_equal(unlink(written), 0);
    *folder_end = '\0';
    assert_int_equal(rmdir(written), 0); // fails where an attempt left its file
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_open),
        cmocka_unit_test(test_open_split),
        cmocka_unit_test(test_write),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
