// Adapters in a graph: every product with a weight that an adapter has a pair for is followed by one OP_LORA, which
// adds the terms of all adapters. A graph without adapters has none.
#include "base/buffer.h"
#include "tensor/graph.h"

#include <string.h>

// A weight of an adapter: all of a file's tensor, or of each of its matrices the rows that a part of a fused weight
// has. turned: its rows are the file's columns.
static struct tensor *adapter_weight(struct graph *graph, uint32_t adapter, const struct lora_tensor *file, bool turned,
                                     const struct tensor *part, const struct tensor *segments_of, uint32_t unit)
{
    size_t first_row = part == NULL ? 0 : part->first_row, turned_rows = turned ? file->ne[1] : 0;
    size_t n_rows = part == NULL ? file->ne[1] : part->ne[1];
    struct tensor like = {.name = file->name,
                          .dtype = turned ? DTYPE_F32 : file->dtype,
                          .n_dims = 3,
                          .ne = {turned ? n_rows : file->ne[0], turned ? file->ne[0] : n_rows, file->ne[2], 1},
                          .rows = ROWS_NONE,
                          .first_row = first_row,
                          .rows_in_file = turned ? file->ne[0] : file->ne[1],
                          .turned_rows = turned_rows,
                          .segments_of = segments_of,
                          .segment_unit = segments_of == NULL ? 0 : unit,
                          .adapter = adapter};
    return graph_adapter_weight_like(graph, &like);
}

struct tensor *graph_adapter_weight_like(struct graph *graph, const struct tensor *like)
{
    for (size_t i = 0; i < graph->n_adapter_weights; i++) {
        struct tensor *known = graph->adapter_weights[i];
        if (known->adapter == like->adapter && known->turned_rows == like->turned_rows &&
            known->first_row == like->first_row && known->first_column == like->first_column &&
            known->first_matrix == like->first_matrix && memcmp(known->ne, like->ne, sizeof(known->ne)) == 0 &&
            strcmp(known->name, like->name) == 0)
            return known;
    }
    struct tensor *tensor = arena_alloc(&graph->arena, sizeof(*tensor));
    char *name = arena_copy_text(&graph->arena, like->name, strlen(like->name));
    if (tensor == NULL || name == NULL ||
        !array_grow((void **)&graph->adapter_weights, &graph->adapter_weights_capacity, graph->n_adapter_weights + 1,
                    sizeof(struct tensor *))) {
        error_memory(&graph->error, "the graph");
        return NULL;
    }
    *tensor = *like;
    tensor->name = name;
    tensor->index = (uint32_t)graph->n_adapter_weights;
    graph->adapter_weights[graph->n_adapter_weights++] = tensor;
    return tensor;
}

static void make_term(struct graph *graph, struct lora_term *term, const struct lora_pair *pair,
                      const struct lora_place *place, uint32_t unit)
{
    term->adapter = pair->adapter;
    term->factor = pair->factor;
    // A first matrix of blocks can't be cut as finely as a plain weight: it keeps its own segments.
    const struct tensor *weight = place->weight;
    enum dtype first_dtype = pair->flipped ? DTYPE_F32 : pair->a.dtype; // a turned one is F32
    const struct tensor *segments_of = grain_of_dtype(first_dtype) > grain_of_dtype(weight->dtype) ? NULL : weight;
    if (!pair->flipped) {
        term->first = adapter_weight(graph, pair->adapter, &pair->a, false, NULL, segments_of, unit);
        term->second = adapter_weight(graph, pair->adapter, &pair->b, false, weight, NULL, 0);
    } else if (place->x == NULL) { // the embedding of token t: b · a[t]
        term->first = adapter_weight(graph, pair->adapter, &pair->a, false, NULL, NULL, 0);
        term->second = adapter_weight(graph, pair->adapter, &pair->b, false, NULL, NULL, 0);
    } else { // the same table as output head: row t of b · a is a[t] · bᵀ, so its product is a (bᵀ x)
        term->first = adapter_weight(graph, pair->adapter, &pair->b, true, NULL, segments_of, unit);
        term->second = adapter_weight(graph, pair->adapter, &pair->a, false, NULL, NULL, 0);
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
    uint32_t unit = y->producer->op == OP_MATMUL ? y->producer->attributes.segment_unit : 0;
    for (size_t i = 0; i < graph->n_lora_pairs; i++) {
        if (!fits(&graph->lora_pairs[i], place))
            continue;
        graph->lora_pairs[i].used = true;
        make_term(graph, &terms[lora->n_terms++], &graph->lora_pairs[i], place, unit);
    }
    if (graph->error.status != STATUS_OK)
        return NULL;
    struct attributes attributes = {.lora = lora, .weighted = place->weighted};
    return graph_apply(graph, OP_LORA, &attributes,
                       (struct tensor *[MAX_SOURCES]){y, place->x, place->route, place->gate});
}
