// Pages of the KV cache as bytes, for sessions that are saved: of one layer, all its heads one behind the other. Of the
// positions that no token has yet nothing is given away: they are zeros.
#include "cpu/plan.h"

#include <string.h>

size_t cpu_kv_head_bytes(const struct plan *plan, uint32_t layer)
{
    return plan->kv_places[layer].head_bytes;
}

size_t cpu_kv_layer_bytes(const struct plan *plan, uint32_t layer)
{
    return plan->kv_places[layer].head_bytes * plan->graph->kv_layers[layer].n_head;
}

// rows × [64 positions] of `size` bytes each: the positions from n on become zeros.
static void clear_columns(uint8_t *bytes, size_t rows, size_t size, size_t n)
{
    for (size_t row = 0; row < rows; row++)
        memset(bytes + (row * KV_PAGE_POSITIONS + n) * size, 0, (KV_PAGE_POSITIONS - n) * size);
}

// The layouts are those of struct attention_chunk.
static void clear_head(const struct plan *plan, uint32_t layer, uint8_t *head, size_t n)
{
    const struct kv_layer *dims = &plan->graph->kv_layers[layer];
    const struct kv_place *place = &plan->kv_places[layer];
    enum kv_dtype kv = plan->params.kv;
    size_t bytes = kv_element_bytes(kv), k_end, v_end = place->head_bytes;
    bool q8 = kv == KV_DTYPE_Q8_0;
    clear_columns(head, q8 ? dims->k_dim / 4 : dims->k_dim, q8 ? 4 : bytes, n);
    size_t k_scales = kv == KV_DTYPE_F32 ? 0 : q8 ? dims->k_dim / 32 : 1;
    clear_columns(head + place->k_scale, k_scales, sizeof(float), n);
    k_end = place->k_scale + k_scales * KV_PAGE_POSITIONS * sizeof(float);
    memset(head + k_end, 0, (dims->v_in_k ? place->head_bytes : place->v) - k_end);
    if (dims->v_in_k)
        return;
    memset(head + place->v + n * dims->v_dim * bytes, 0, (KV_PAGE_POSITIONS - n) * dims->v_dim * bytes);
    size_t v_scales = kv == KV_DTYPE_F32 ? 0 : q8 ? dims->v_dim / 32 : 1; // of a position
    size_t used = place->v_scale + n * v_scales * sizeof(float);
    memset(head + used, 0, v_end - used);
}

enum status cpu_kv_copy(struct plan *plan, const struct kv_page *page, void *bytes, bool write, struct error *error)
{
    (void)error;
    const struct kv_place *place = &plan->kv_places[page->layer];
    size_t size = cpu_kv_layer_bytes(plan, page->layer);
    if (size == 0)
        return STATUS_OK;
    uint8_t *memory = plan->pages[place->kind] + page->page * plan->kinds[place->kind].page_bytes + place->offset;
    if (write) {
        memcpy(memory, bytes, size);
        return STATUS_OK;
    }
    memcpy(bytes, memory, size);
    for (uint32_t head = 0; head < plan->graph->kv_layers[page->layer].n_head; head++)
        clear_head(plan, page->layer, (uint8_t *)bytes + head * place->head_bytes, page->n_positions);
    return STATUS_OK;
}
