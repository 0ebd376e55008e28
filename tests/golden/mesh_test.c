// One answer on a mesh: every model's logits on 2, 3, 4 and 8 devices, and on unequal splits of them, are those of one
// device bit for bit, whether its tokens go through together, a few at a time or one by one.
#include "golden.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <dirent.h>

struct mesh {
    size_t n_devices;
    double split[8]; // all 0: even
    size_t n_threads, n_batch;
    mote_kv kv;
};

static const struct mesh meshes[] = {
    {2, {0}, 2, 512, MOTE_KV_DEFAULT},
    {2, {0}, 2, 1, MOTE_KV_DEFAULT},
    {3, {0}, 6, 7, MOTE_KV_DEFAULT},
    {4, {0}, 4, 512, MOTE_KV_DEFAULT},
    {8, {0}, 8, 64, MOTE_KV_DEFAULT},
    {8, {0}, 8, 1, MOTE_KV_DEFAULT},
    {2, {7, 1}, 3, 33, MOTE_KV_DEFAULT},
    {3, {50, 25, 25}, 3, 1, MOTE_KV_DEFAULT},
    {4, {1, 0, 5, 2}, 4, 512, MOTE_KV_DEFAULT}, // one device has nothing
    {3, {0}, 3, 512, MOTE_KV_F32},
};

static int compare_names(const void *a, const void *b)
{
    return strcmp(a, b);
}

enum { MAX_MODELS = 128, NAME_SIZE = 64 };

static size_t list_models(const char *folder, char names[MAX_MODELS][NAME_SIZE])
{
    DIR *entries = opendir(folder);
    size_t n = 0;
    assert_non_null(entries);
    for (struct dirent *entry = readdir(entries); entry != NULL && n < MAX_MODELS; entry = readdir(entries)) {
        size_t length = strlen(entry->d_name);
        if (strstr(entry->d_name, ".golden.gguf") == NULL || length >= NAME_SIZE)
            continue;
        snprintf(names[n++], NAME_SIZE, "%.*s", (int)(length - strlen(".golden.gguf")), entry->d_name);
    }
    closedir(entries);
    qsort(names, n, NAME_SIZE, compare_names);
    return n;
}

// Which meshes of the list a model takes: all, but every third under a sanitizer.
static size_t mesh_stride(void)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    return 3;
#else
    return 1;
#endif
}

static void check_model(const char *folder, const char *name, bool f32)
{
    struct golden golden;
    golden_load(&golden, folder, name);
    size_t n;
    float *one = golden_run(&golden, &(struct setup){.f32 = f32, .n_threads = 2}, &n);
    float *one_f32 = golden_run(&golden, &(struct setup){.f32 = f32, .n_threads = 2, .kv = MOTE_KV_F32}, &n);
    for (size_t i = (size_t)name[strlen(name) - 1] % mesh_stride(); i < sizeof(meshes) / sizeof(meshes[0]);
         i += mesh_stride()) {
        const struct mesh *mesh = &meshes[i];
        bool even = true;
        for (size_t d = 0; d < mesh->n_devices; d++)
            even = even && mesh->split[d] == 0;
        struct setup setup = {.f32 = f32,
                              .n_threads = mesh->n_threads,
                              .n_batch = mesh->n_batch,
                              .kv = mesh->kv,
                              .n_logits = 1 + i * 5 % 16,
                              .n_devices = mesh->n_devices,
                              .split = even ? NULL : mesh->split};
        size_t n_mesh;
        float *logits = golden_run(&golden, &setup, &n_mesh);
        assert_int_equal(n_mesh, n);
        if (memcmp(logits, mesh->kv == MOTE_KV_F32 ? one_f32 : one, n * sizeof(float)) != 0)
            fail_msg("%s %s: mesh %zu (%zu devices, batches of %zu) gives other bits", name, f32 ? "f32" : "default", i,
                     mesh->n_devices, mesh->n_batch);
        free(logits);
    }
    free(one);
    free(one_f32);
    golden_free(&golden);
}

static void check_folder(const char *folder)
{
    static char names[MAX_MODELS][NAME_SIZE];
    size_t n = list_models(folder, names), stride = golden_stride();
    assert_true(n > 10);
    for (size_t i = 0; i < n; i += stride) {
        check_model(folder, names[i], false);
        check_model(folder, names[i], true);
    }
    if (mesh_stride() > 1)
        print_message("skipped: two meshes of three, of every model: under a sanitizer\n");
    print_message("%zu models of %s\n", (n + stride - 1) / stride, strrchr(folder, '/') + 1);
}

static void test_models(void **state)
{
    (void)state;
    check_folder(TEST_DATA "/models");
}

static void test_odd(void **state)
{
    (void)state;
    check_folder(TEST_DATA "/odd");
}

int main(int argc, char **argv)
{
    if (argc == 4) { // mesh_test FOLDER NAME f32|default: one model, to find out
        check_model(argv[1], argv[2], strcmp(argv[3], "f32") == 0);
        return 0;
    }
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_models), cmocka_unit_test(test_odd)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
