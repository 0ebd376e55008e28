// Runs a fuzzer's entry on every file of a folder of seeds, so that what fuzzing found once is tested by every build.
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int run_file(const char *path)
{
    FILE *file = fopen(path, "rb");
    struct stat status;
    if (!file || fstat(fileno(file), &status) != 0) {
        perror(path);
        if (file)
            fclose(file);
        return 1;
    }
    // One allocation of exactly the file's size: a sanitizer sees a read past its end.
    size_t size = (size_t)status.st_size;
    uint8_t *data = malloc(size ? size : 1);
    int failed = !data || fread(data, 1, size, file) != size;
    if (failed)
        fprintf(stderr, "%s could not be read\n", path);
    else
        LLVMFuzzerTestOneInput(data, size);
    free(data);
    fclose(file);
    return failed;
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: %s FOLDER\n", argv[0]);
        return 2;
    }
    DIR *folder = opendir(argv[1]);
    if (!folder) {
        perror(argv[1]);
        return 1;
    }
    size_t n_files = 0;
    int n_failed = 0;
    for (struct dirent *entry; (entry = readdir(folder));) {
        if (entry->d_name[0] == '.')
            continue;
        char path[4096];
        int length = snprintf(path, sizeof path, "%s/%s", argv[1], entry->d_name);
        if (length < 0 || (size_t)length >= sizeof path) {
            fprintf(stderr, "%s/%s: the path is too long\n", argv[1], entry->d_name);
            n_failed++;
            continue;
        }
        n_failed += run_file(path);
        n_files++;
    }
    closedir(folder);
    printf("%zu seeds\n", n_files);
    return n_failed || n_files == 0;
}
