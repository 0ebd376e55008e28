// Adapters in a graph: every product with a weight that an adapter has a pair for is followed by one OP_LORA, which
// adds the terms of all adapters. A graph without adapters has none.
#include "base/buffer.h"
#include "tensor/graph.h"

#include <string.h>

// A weight of an adapter: all of a file's tensor, or of each of its matrices the rows that a part of a fused weight
// has. turned: its rows are the file's columns.
static struct tensor *adapter_weight(struct graph *graph, uint32_t adapter, const struct lora_tensor *file, bool turned,
                                     const struct tensor *part)
{
    size_t first_row = part == NULL ? 0 : part->first_row, turned_rows = turned ? file->ne[1] : 0;
    for (size_t i = 0; i < graph->n_adapter_weights; i++) {
        struct tensor *known = graph->adapter_weights[i];
        if (known->adapter == adapter && known->turned_rows == turned_rows && known->first_row == first_row &&
            strcmp(known->name, file->name) == 0)
            return known;
    }
    struct tensor *tensor = arena_alloc(&graph->arena, sizeof(*tensor));
    char *name = arena_copy_text(&graph->arena, file->name, strlen(file->name));
    if (tensor == NULL || name == NULL ||
        !array_grow((void **)&graph->adapter_weights, &graph->adapter_weights_capacity, graph->n_adapter_weights + 1,
                    sizeof(struct tensor *))) {
        error_memory(&graph->error, "the graph");
        return NULL;
    }
    size_t n_rows = part == NULL ? file->ne[1] : part->ne[1];
    *tensor = (struct tensor){.name = name,
                              .dtype = turned ? DTYPE_F32 : file->dtype,
                              .n_dims = 3,
                              .ne = {turned ? n_rows : file->ne[0], turned ? file->ne[0] : n_rows, file->ne[2], 1},
                              .rows = ROWS_NONE,
                              .first_row = first_row,
                              .rows_in_file = turned ? file->ne[0] : file->ne[1],
                              .turned_rows = turned_rows,
                              .adapter = adapter,
                              .index = (uint32_t)graph->n_adapter_weights};
    graph->adapter_weights[graph->n_adapter_weights++] = tensor;
    return tensor;
}

static void make_term(struct graph *graph, struct lora_term *term, const struct lora_pair *pair,
                      const struct lora_place *place)
{
    term->adapter = pair->adapter;
    term->factor = pair->factor;
    if (!pair->flipped) {
        term->first = adapter_weight(graph, pair->adapter, &pair->a, false, NULL);
        term->second = adapter_weight(graph, pair->adapter, &pair->b, false, place->weight);
    } else if (place->x == NULL) { // the embedding of token t: b · a[t]
        term->first = adapter_weight(graph, pair->adapter, &pair->a, false, NULL);
        term->second = adapter_weight(graph, pair->adapter, &pair->b, false, NULL);
    } else { // the same table as output head: row t of b · a is a[t] · bᵀ, so its product is a (bᵀ x)
        term->first = adapter_weight(graph, pair->adapter, &pair->b, true, NULL);
        term->second = adapter_weight(graph, pair->adapter, &pair->a, false, NULL);
    }
}

// A weight that lies otherwise in the file than the graph has it (turned, or one matrix as a stack) has no place for a
// pair: adapters_check_used says so.
static bool fits(const struct lora_pair *pair, const struct lora_place *place)
{
    const struct tensor *weight = place->weight;
    return strcmp(pair->weight, weight->name) == 0 && (place->x != NULL || pair->flipped) && weight->turned_rows == 0 &&
           weight->ne[2] == pair->a.ne[2];
}

struct tensor *graph_lora(struct graph *graph, struct tensor *y, const struct lora_place *place)
{
    if (graph->error.status != STATUS_OK)
        return NULL;
    uint32_t n_terms = 0;
    for (size_t i = 0; i < graph->n_lora_pairs; i++)
        n_terms += fits(&graph->lora_pairs[i], place);
    if (n_terms == 0)
        return y;
    struct lora *lora = arena_alloc(&graph->arena, sizeof(*lora));
    struct lora_term *terms = arena_alloc_array(&graph->arena, n_terms, sizeof(*terms));
    if (lora == NULL || terms == NULL) {
        error_memory(&graph->error, "the graph");
        return NULL;
    }
    *lora = (struct lora){.terms = terms};
    for (size_t i = 0; i < graph->n_lora_pairs; i++) {
        if (!fits(&graph->lora_pairs[i], place))
            continue;
        graph->lora_pairs[i].used = true;
        make_term(graph, &terms[lora->n_terms++], &graph->lora_pairs[i], place);
    }
    if (graph->error.status != STATUS_OK)
        return NULL;
    struct attributes attributes = {.lora = lora, .weighted = place->weighted};
    return graph_apply(graph, OP_LORA, &attributes,
                       (struct tensor *[MAX_SOURCES]){y, place->x, place->route, place->gate});
}
