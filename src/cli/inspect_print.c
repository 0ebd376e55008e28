#include "inspect_print.h"

#include "output.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { VALUE_WIDTH = 70, ARRAY_SHOWN = 4, COLUMNS_MAX = 8, CONTEXT_DEFAULT = 8192 };

size_t inspect_context(const mote_model *model, const mote_engine_params *params)
{
    size_t trained = mote_model_n_context(model);
    if (params->n_context > 0) {
        return params->n_context;
    }
    return trained > 0 && trained < CONTEXT_DEFAULT ? trained : CONTEXT_DEFAULT;
}

// ---- cells: text without control characters, of a known width

struct cell { // NUL-terminated
    char *text;
    size_t size, width; // bytes, characters
};

// Takes what was printed to a memory stream.
static struct cell cell_of(char *text, size_t size)
{
    struct cell cell = {.text = text, .size = size};
    for (size_t i = 0; i < size; i++) {
        cell.width += ((unsigned char)text[i] & 0xc0) != 0x80;
    }
    return cell;
}

// At most `limit` bytes of text, whole characters, with "…" where something was left out.
static void print_clipped(FILE *out, const char *text, size_t size, size_t limit)
{
    size_t end = 0;
    for (size_t length; end < size; end += length) {
        length = utf8_character(text + end, size - end);
        length = length ? length : 1;
        if (end + length > limit) {
            break;
        }
    }
    print_escaped(out, text, end);
    if (end < size) {
        fputs("…", out);
    }
}

static void print_value(FILE *out, const json_t *value, uint64_t count, size_t limit)
{
    if (json_is_string(value)) {
        print_clipped(out, json_string_value(value), json_string_length(value), limit);
    } else if (json_is_array(value)) {
        size_t size = json_array_size(value), shown = size < ARRAY_SHOWN ? size : ARRAY_SHOWN;
        fputc('[', out);
        for (size_t i = 0; i < shown; i++) {
            fputs(i ? ", " : "", out);
            print_value(out, json_array_get(value, i), 0, limit / ARRAY_SHOWN);
        }
        uint64_t all = count > size ? count : size;
        fputs(shown < all ? ", …]" : "]", out);
        if (shown < all) {
            fprintf(out, " (%llu)", (unsigned long long)all);
        }
    } else if (json_is_integer(value)) {
        fprintf(out, "%lld", (long long)json_integer_value(value));
    } else if (json_is_real(value)) {
        fprintf(out, "%.9g", json_real_value(value));
    } else if (json_is_object(value)) {
        fputs("{…}", out);
    } else {
        fputs(json_is_true(value) ? "true" : json_is_false(value) ? "false" : "-", out);
    }
}

static struct cell value_cell(const json_t *value, uint64_t count)
{
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    if (out) {
        print_value(out, value, count, VALUE_WIDTH);
        fclose(out);
    }
    return cell_of(text, size);
}

static struct cell text_cell(const char *text)
{
    char *copy = strdup(text);
    return cell_of(copy, copy ? strlen(copy) : 0);
}

// ---- tables

struct table {
    size_t n_columns;
    const char *alignment; // a letter a column: l or r
    struct cell *cells;    // rows of n_columns
    size_t n_cells, capacity;
    bool failed; // out of memory: what is missing is not shown
};

static void table_add(struct table *table, struct cell cell)
{
    if (table->n_cells == table->capacity) {
        size_t capacity = table->capacity ? 2 * table->capacity : 256;
        struct cell *cells = realloc(table->cells, capacity * sizeof *cells);
        if (!cells) {
            table->failed = true;
            free(cell.text);
            return;
        }
        table->cells = cells;
        table->capacity = capacity;
    }
    table->cells[table->n_cells++] = cell;
}

static void table_print(struct table *table)
{
    size_t widths[COLUMNS_MAX] = {0};
    size_t n_rows = table->n_columns > 0 ? table->n_cells / table->n_columns : 0;
    for (size_t i = 0; i < n_rows * table->n_columns; i++) {
        size_t *width = &widths[i % table->n_columns];
        *width = table->cells[i].width > *width ? table->cells[i].width : *width;
    }
    for (size_t i = 0; i < n_rows * table->n_columns; i++) {
        const struct cell *cell = &table->cells[i];
        size_t column = i % table->n_columns;
        bool last = column + 1 == table->n_columns;
        int padding = (int)(widths[column] - cell->width);
        bool right = table->alignment[column] == 'r';
        printf("  %*s", right ? padding : 0, "");
        fwrite(cell->text ? cell->text : "", 1, cell->size, stdout);
        printf("%*s%s", right || last ? 0 : padding, "", last ? "\n" : "");
    }
    if (table->failed) {
        fputs("  … (out of memory)\n", stdout);
    }
    for (size_t i = 0; i < table->n_cells; i++) {
        free(table->cells[i].text);
    }
    free(table->cells);
    *table = (struct table){0};
}

static double number_of(const json_t *object, const char *key)
{
    return json_number_value(json_object_get(object, key));
}

// ---- what is shown

// The members of an object that are no objects, a line each.
static void add_members(struct table *table, const json_t *object)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)object, key, value)
    {
        if (!json_is_object(value)) {
            json_t *name = json_string(key);
            table_add(table, value_cell(name, 0));
            json_decref(name);
            table_add(table, value_cell(value, 0));
        }
    }
}

void inspect_print_summary(const char *path, const json_t *metadata, const json_t *about)
{
    print_escaped(stdout, path, strlen(path));
    long long files = (long long)number_of(metadata, "files");
    printf(": GGUF version %lld, %s", (long long)number_of(metadata, "version"),
           format_bytes(number_of(metadata, "size")).text);
    if (files > 1) {
        printf(" in %lld files", files);
    }
    fputs("\n\nMetadata\n", stdout);
    struct table table = {.n_columns = 3, .alignment = "lll"};
    const json_t *entry;
    size_t i;
    json_array_foreach(json_object_get(metadata, "keys"), i, entry)
    {
        table_add(&table, value_cell(json_object_get(entry, "key"), 0));
        table_add(&table, value_cell(json_object_get(entry, "type"), 0));
        table_add(&table, value_cell(json_object_get(entry, "value"), (uint64_t)number_of(entry, "count")));
    }
    table_print(&table);
    if (!about) {
        return;
    }
    fputs("\nModel\n", stdout);
    table = (struct table){.n_columns = 2, .alignment = "ll"};
    add_members(&table, about);
    add_members(&table, json_object_get(about, "hyperparameters"));
    table_print(&table);
    if (json_object_size(json_object_get(about, "tokenizer")) > 0) {
        fputs("\nTokenizer\n", stdout);
        table = (struct table){.n_columns = 2, .alignment = "ll"};
        add_members(&table, json_object_get(about, "tokenizer"));
        table_print(&table);
    }
}

void inspect_print_memory(const mote_memory *memory, size_t n_context)
{
    const struct {
        const char *name;
        uint64_t bytes;
    } lines[] = {
        {"weights", memory->weights}, {"KV cache", memory->kv}, {"work", memory->work},
        {"logits", memory->logits},   {"total", memory->total}, {"free now", memory->available},
    };
    printf("\nMemory at a context of %zu\n", n_context);
    struct table table = {.n_columns = 2, .alignment = "lr"};
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        table_add(&table, text_cell(lines[i].name));
        table_add(&table, text_cell(format_bytes((double)lines[i].bytes).text));
    }
    table_print(&table);
    if (memory->total > memory->available) {
        printf("  does not fit: %s%llu\n", memory->n_context_fits ? "the largest context that does is " : "",
               (unsigned long long)memory->n_context_fits);
    }
}

static struct cell shape_cell(const json_t *shape)
{
    char text[128];
    size_t size = 0, i;
    const json_t *extent;
    text[0] = '\0';
    json_array_foreach(shape, i, extent)
    {
        size += (size_t)snprintf(text + size, sizeof text - size, "%s%lld", i ? " × " : "",
                                 (long long)json_integer_value(extent));
        size = size < sizeof text ? size : sizeof text - 1;
    }
    return text_cell(text);
}

void inspect_print_tensors(const json_t *tensors)
{
    struct table table = {.n_columns = 5, .alignment = "lllrr"};
    static const char *const heads[] = {"tensor", "dtype", "shape", "size", "offset"};
    for (size_t i = 0; i < sizeof heads / sizeof heads[0]; i++) {
        table_add(&table, text_cell(heads[i]));
    }
    const json_t *tensor;
    size_t i;
    double bytes = 0;
    json_array_foreach(tensors, i, tensor)
    {
        table_add(&table, value_cell(json_object_get(tensor, "name"), 0));
        table_add(&table, value_cell(json_object_get(tensor, "dtype"), 0));
        table_add(&table, shape_cell(json_object_get(tensor, "shape")));
        table_add(&table, text_cell(format_bytes(number_of(tensor, "size")).text));
        table_add(&table, value_cell(json_object_get(tensor, "offset"), 0));
        bytes += number_of(tensor, "size");
    }
    table_print(&table);
    printf("%zu tensors, %s\n", json_array_size(tensors), format_bytes(bytes).text);
}

// What a step does: "add + rms_norm"; all else as it is.
static struct cell step_cell(const json_t *value)
{
    if (!json_is_array(value) || !json_is_string(json_array_get(value, 0))) {
        return value_cell(value, 0);
    }
    char *text = NULL;
    size_t size = 0, i;
    const json_t *name;
    FILE *out = open_memstream(&text, &size);
    if (out) {
        json_array_foreach(value, i, name)
        {
            fputs(i ? " + " : "", out);
            print_value(out, name, 0, VALUE_WIDTH);
        }
        fclose(out);
    }
    return cell_of(text, size);
}

// What the source of a step's products is rounded to, and the shared expert's where it is another.
static struct cell source_cell(const json_t *step)
{
    const char *source = json_string_value(json_object_get(step, "source"));
    const char *shared = json_string_value(json_object_get(step, "shared_source"));
    char text[64];
    bool other = source && shared && strcmp(source, shared) != 0;
    snprintf(text, sizeof text, "%s%s%s", source ? source : "", other ? ", shared " : "", other ? shared : "");
    return text_cell(text);
}

// The weights of a step: "blk.0.attn_q blk.0.attn_k blk.0.attn_v".
static struct cell weights_cell(const json_t *step)
{
    char *text = NULL;
    size_t size = 0, i;
    const json_t *weight;
    FILE *out = open_memstream(&text, &size);
    if (out) {
        json_array_foreach(json_object_get(step, "weights"), i, weight)
        {
            const char *name = json_string_value(json_object_get(weight, "name"));
            size_t length = strlen(name), end = strlen(".weight");
            length -= length > end && strcmp(name + length - end, ".weight") == 0 ? end : 0;
            fputs(i ? " " : "", out);
            print_clipped(out, name, length, VALUE_WIDTH);
        }
        fclose(out);
    }
    return cell_of(text, size);
}

void inspect_print_plan(const json_t *plan)
{
    static const char *const columns[] = {"step", "kind", "rows", "kernels", "ops"};
    enum { N_COLUMNS = sizeof columns / sizeof columns[0] };
    const json_t *steps = json_object_get(plan, "steps"), *step;
    const char *key;
    json_t *value;
    struct table table = {.n_columns = N_COLUMNS + 2, .alignment = "lllllll"};
    for (size_t column = 0; column < N_COLUMNS; column++) {
        table_add(&table, text_cell(columns[column]));
    }
    table_add(&table, text_cell("source"));
    table_add(&table, text_cell("weights"));
    size_t i;
    json_array_foreach(steps, i, step)
    {
        for (size_t column = 0; column < N_COLUMNS; column++) {
            table_add(&table, step_cell(json_object_get(step, columns[column])));
        }
        table_add(&table, source_cell(step));
        table_add(&table, weights_cell(step));
    }
    table_print(&table);
    printf("%zu steps\n\nMemory\n", json_array_size(steps));
    table = (struct table){.n_columns = 2, .alignment = "lr"};
    json_object_foreach(json_object_get(plan, "memory"), key, value)
    {
        table_add(&table, text_cell(key));
        // All but the counts are bytes.
        bool bytes = strncmp(key, "n_", 2) != 0 && json_is_integer(value);
        table_add(&table, bytes ? text_cell(format_bytes(json_number_value(value)).text) : value_cell(value, 0));
    }
    table_print(&table);
}
