// What a file is that is no GGUF file, from its first bytes, and what to do about it.
#include "gguf/parse.h"

#include <stdio.h>
#include <string.h>

struct signature {
    const char *bytes;
    size_t size;
    const char *what;
};

static const char ADVICE_CONVERT[] = "convert the model to GGUF first, or fetch a GGUF of it";
static const char ADVICE_UNPACK[] = "unpack it first";
static const char ADVICE_LEGACY[] = "this form from before 2023-08 is read by nobody any more: fetch the model as GGUF";

#define SIGNATURE(text, what)                                                                                          \
    {                                                                                                                  \
        text, sizeof text - 1, what                                                                                    \
    }

static const struct signature archives[] = {
    SIGNATURE("\x1f\x8b", "a gzip archive"),
    SIGNATURE("\x28\xb5\x2f\xfd", "a Zstandard archive"),
    SIGNATURE("\xfd"
              "7zXZ",
              "an xz archive"),
    SIGNATURE("BZh", "a bzip2 archive"),
    SIGNATURE("7z\xbc\xaf\x27\x1c", "a 7-Zip archive"),
    SIGNATURE("Rar!", "a RAR archive"),
};

static const struct signature models[] = {
    SIGNATURE("PK\x03\x04", "a ZIP archive, as PyTorch checkpoints (.pt, .bin, .pth) are"),
    SIGNATURE("\x80\x02", "a Python pickle, as old PyTorch checkpoints are"),
    SIGNATURE("\x80\x04", "a Python pickle, as old PyTorch checkpoints are"),
    SIGNATURE("\x89HDF\r\n", "an HDF5 file, as Keras models are"),
    SIGNATURE("\x93NUMPY", "a NumPy array"),
};

// The old names of llama.cpp's formats, read as little-endian numbers, lie backwards in the file.
static const struct signature legacy[] = {
    SIGNATURE("lmgg", "a model in the old ggml format"), SIGNATURE("fmgg", "a model in the old ggmf format"),
    SIGNATURE("tjgg", "a model in the old ggjt format"), SIGNATURE("algg", "a LoRA adapter in the old ggla format"),
    SIGNATURE("GGML", "a model in an old ggml format"),
};

static const struct signature *find_signature(const struct signature *list, size_t n, const unsigned char *head,
                                              size_t size)
{
    for (size_t i = 0; i < n; i++)
        if (size >= list[i].size && memcmp(head, list[i].bytes, list[i].size) == 0)
            return &list[i];
    return NULL;
}

#define FIND(list, head, size) find_signature(list, sizeof list / sizeof list[0], head, size)

// Whether text begins with prefix (lower case), whatever its own case.
static bool begins_with(const unsigned char *text, size_t size, const char *prefix)
{
    size_t length = strlen(prefix);
    if (size < length)
        return false;
    for (size_t i = 0; i < length; i++) {
        unsigned char c = text[i];
        if (c >= 'A' && c <= 'Z')
            c = (unsigned char)(c + 'a' - 'A');
        if (c != (unsigned char)prefix[i])
            return false;
    }
    return true;
}

static bool is_text(const unsigned char *head, size_t size)
{
    for (size_t i = 0; i < size; i++)
        if ((head[i] < 0x20 && head[i] != '\t' && head[i] != '\n' && head[i] != '\r') || head[i] == 0x7f)
            return false;
    return size > 0;
}

static bool is_html(const unsigned char *head, size_t size)
{
    static const char *const beginnings[] = {"<!doctype html", "<html", "<head", "<!--", "<?xml", "<body"};
    for (size_t i = 0; i < sizeof beginnings / sizeof beginnings[0]; i++)
        if (begins_with(head, size, beginnings[i]))
            return true;
    return false;
}

static bool is_safetensors(const unsigned char *head, size_t size, uint64_t file_size)
{
    uint64_t header; // its length, then JSON
    if (size <= sizeof header)
        return false;
    memcpy(&header, head, sizeof header);
    return head[8] == '{' && header >= 2 && header <= file_size - sizeof header;
}

static bool is_zeros(const unsigned char *head, size_t size)
{
    for (size_t i = 0; i < size; i++)
        if (head[i])
            return false;
    return true;
}

static enum status say(struct error *error, const unsigned char *magic, const char *what, const char *advice)
{
    return error_set(error, STATUS_INVALID, "not a GGUF file (its magic is '%.4s'): it is %s; %s", (const char *)magic,
                     what, advice);
}

// Text files: what a failed download leaves behind.
static enum status identify_text(const unsigned char *head, size_t size, struct error *error)
{
    if (begins_with(head, size, "version https://git-lfs") || begins_with(head, size, "version https://hawser"))
        return say(error, head, "a Git LFS pointer, which stands for the model",
                   "fetch the model itself: git lfs pull");
    const unsigned char *text = head;
    size_t rest = size;
    if (begins_with(text, rest, "\xef\xbb\xbf")) {
        text += 3;
        rest -= 3;
    }
    while (rest && (*text == ' ' || *text == '\t' || *text == '\r' || *text == '\n')) {
        text++;
        rest--;
    }
    if (is_html(text, rest))
        return say(error, head, "an HTML page, perhaps a log-in or error page of a web site",
                   "fetch the file itself (its download link, not the page about it)");
    if (rest && (*text == '{' || *text == '['))
        return say(error, head, "JSON text", "give the model file, not what describes it");
    return say(error, head, "a text file", "give a model file; if this came from a download, read it: it may say why");
}

enum status gguf_identify(const unsigned char *head, size_t head_size, uint64_t file_size, struct error *error)
{
    if (file_size == 0)
        return error_set(error, STATUS_INVALID, "not a GGUF file: it is empty (0 bytes); fetch or copy it again");
    if (head_size < 4)
        return error_set(error, STATUS_INVALID,
                         "not a GGUF file: it is truncated inside the magic, it has %llu bytes only; fetch or copy it "
                         "again",
                         (unsigned long long)file_size);
    const struct signature *found = FIND(archives, head, head_size);
    if (found)
        return say(error, head, found->what, ADVICE_UNPACK);
    found = FIND(models, head, head_size);
    if (found)
        return say(error, head, found->what, ADVICE_CONVERT);
    found = FIND(legacy, head, head_size);
    if (found)
        return say(error, head, found->what, ADVICE_LEGACY);
    if (is_safetensors(head, head_size, file_size))
        return say(error, head, "a safetensors file", ADVICE_CONVERT);
    if (head_size > 262 && memcmp(head + 257, "ustar", 5) == 0)
        return say(error, head, "a tar archive", ADVICE_UNPACK);
    if (is_zeros(head, head_size))
        return error_set(error, STATUS_INVALID,
                         "not a GGUF file: it begins with zeros, not with the magic 'GGUF', as an unfinished download "
                         "does; fetch or copy it again");
    if (begins_with(head, head_size, "gguf") && memcmp(head, "GGUF", 4) != 0)
        return say(error, head, "unknown (the magic of GGUF is written in capitals)", "fetch or copy it again");
    if (is_text(head, head_size))
        return identify_text(head, head_size, error);
    return say(error, head, "of a kind that mote does not know", "give a model in the GGUF format");
}
