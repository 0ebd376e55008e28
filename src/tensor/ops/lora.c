// lora: what adapters add to a product, as a sum of its own that is added once. Which adapters a row has, and how much
// of each, is given with the rows of a run; a row without adapters stays as it is, bit for bit. Source: Hu et al.,
// LoRA: Low-Rank Adaptation of Large Language Models, 2021.
#include "tensor/op.h"

// Whether an adapter's matrices fit: of x (or of one head of it, or tables of its rows) to y.
static bool term_fits(const struct node *node, const struct lora_term *term)
{
    const struct tensor *y = node->sources[0], *x = node->sources[1], *route = node->sources[2];
    const struct tensor *first = term->first, *second = term->second;
    if (node->sources[4] != NULL)
        return second->ne[0] == first->ne[1] && y->ne[0] == second->ne[1] && first->ne[2] == second->ne[2];
    if (x == NULL)
        return first->ne[2] == 1 && second->ne[2] == 1 && second->ne[0] == first->ne[0] && second->ne[1] == y->ne[0];
    size_t n_heads = route != NULL ? 1 : first->ne[2];
    return second->ne[0] == first->ne[1] && first->ne[2] == second->ne[2] && x->ne[0] == first->ne[0] * n_heads &&
           y->ne[0] == second->ne[1] * n_heads &&
           (route == NULL || first->ne[2] == route->producer->attributes.routing.n_expert);
}

static enum status infer(const struct node *node, struct tensor *result, struct error *error)
{
    const struct tensor *y = node->sources[0], *x = node->sources[1], *route = node->sources[2];
    const struct tensor *gate = node->sources[3], *hidden = node->sources[4];
    const struct lora *lora = node->attributes.lora;
    const struct tensor *from = x != NULL ? x : hidden;
    bool good = route == NULL ? from == NULL || from->rows == y->rows
                              : from != NULL && route->producer != NULL && route->producer->op == OP_ROUTE;
    good = good && (gate == NULL || (gate->ne[0] == 1 && gate->rows == y->rows));
    for (uint32_t i = 0; good && i < lora->n_terms; i++) {
        if (!term_fits(node, &lora->terms[i])) {
            char a[128], b[128];
            op_describe_tensor(lora->terms[i].first, a, sizeof(a));
            op_describe_tensor(lora->terms[i].second, b, sizeof(b));
            return error_set(error, STATUS_INVALID, "lora: the shapes of %s, %s and the product do not fit", a, b);
        }
    }
    if (!good) {
        char text[128];
        op_describe_tensor(y, text, sizeof(text));
        return error_set(error, STATUS_INVALID, "lora: the rows of %s and of its source do not fit", text);
    }
    return op_infer_first(y, result);
}

// The second matrices are cut by output row as the product is; then the first ones are on every device, and x is whole.
// Matrices of heads go with their heads. A product that is a partial sum is completed first, and so is A x, whose first
// matrices are then cut along K as the product's weight is (lora_hidden).
static void place(const struct node *node, const struct placement *have, struct placement *need,
                  struct placement *result)
{
    const struct lora *lora = node->attributes.lora;
    bool heads =
        lora != NULL && node->sources[1] != NULL && node->sources[2] == NULL && lora->terms[0].first->ne[2] > 1;
    need[0] = have[0].kind == PLACED_PARTIAL ? placement_replicate() : have[0];
    need[1] = heads ? need[0] : placement_replicate();
    need[2] = need[3] = need[4] = placement_replicate();
    *result = need[0];
}

// As if every row had all adapters.
static void cost(const struct node *node, size_t n_rows, size_t n_past, struct op_cost *cost)
{
    (void)n_past;
    const struct tensor *x = node->sources[1], *route = node->sources[2];
    const struct lora *lora = node->attributes.lora;
    double pairs = route == NULL ? 1 : route->producer->attributes.routing.n_used;
    for (uint32_t i = 0; i < lora->n_terms; i++) {
        const struct tensor *first = lora->terms[i].first, *second = lora->terms[i].second;
        double count = (double)first->ne[2], rows = pairs * (double)n_rows;
        double read = route != NULL && rows < count ? rows : n_rows == 0 ? 0 : count;
        rows = route != NULL ? rows : count * (double)n_rows;
        if (x != NULL)
            op_cost_product(first, PRECISION_F32, read, rows, cost);
        op_cost_product(second, PRECISION_F32, read, rows, cost);
    }
}

const struct op_desc op_lora = {
    .op = OP_LORA,
    .name = "lora",
    .doc = "y [n, rows or pairs], x [k, rows or pairs], route, gate [1, rows], hidden (A x, instead of x) -> as y: y "
           "plus the sum over the row's "
           "adapters of scale * alpha / rank * B (A x), over its experts too where y is their sum",
    .n_sources = 5,
    .n_optional = 4,
    .infer = infer,
    .place = place,
    .cost = cost,
};
