// The table of architectures, and building one.
#include "model/model.h"

#include "base/buffer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct architecture *const architectures[] = {
    &arch_bailingmoe, &arch_deepseek2, &arch_gemma3, &arch_glm4moe,  &arch_gpt_oss,  &arch_granite,
    &arch_granitemoe, &arch_llama,     &arch_mellum, &arch_mistral3, &arch_mistral4, &arch_olmoe,
    &arch_qwen2,      &arch_qwen2moe,  &arch_qwen3,  &arch_qwen3moe,
};

enum { N_ARCHITECTURES = sizeof(architectures) / sizeof(architectures[0]) };

static enum status find_architecture(const struct gguf *gguf, const struct architecture **found, struct error *error)
{
    struct gguf_string name;
    enum status status = gguf_get_string(gguf, "general.architecture", true, &name, error);
    if (status != STATUS_OK)
        return status;
    char known[512] = "";
    size_t length = 0;
    for (size_t i = 0; i < N_ARCHITECTURES; i++) {
        if (strcmp(architectures[i]->name, name.text) == 0) {
            *found = architectures[i];
            return STATUS_OK;
        }
        if (length < sizeof(known))
            length += (size_t)snprintf(known + length, sizeof(known) - length, "%s%s", i == 0 ? "" : ", ",
                                       architectures[i]->name);
    }
    if (strcmp(name.text, "clip") == 0)
        return error_set(
            error, STATUS_UNSUPPORTED,
            "this is a projector for images (an mmproj file), not a language model: give the model's file");
    return error_set(error, STATUS_UNSUPPORTED, "general.architecture is '%s', which mote does not know (it knows %s)",
                     name.text, known);
}

// Files that are no language model but might be taken for one.
static enum status check_is_model(const struct gguf *gguf, struct error *error)
{
    struct gguf_string type = {.text = ""};
    const struct gguf_value *value = gguf_find(gguf, "general.type");
    if (value != NULL && value->type == GGUF_STRING)
        type = value->string;
    if (strcmp(type.text, "adapter") == 0)
        return error_set(error, STATUS_INVALID, "this is an adapter (LoRA), not a model: give the model's file");
    if (strcmp(type.text, "mmproj") == 0)
        return error_set(
            error, STATUS_INVALID,
            "this is a projector for images (an mmproj file), not a language model: give the model's file");
    if (gguf->n_tensors == 0)
        return error_set(error, STATUS_INVALID,
                         "the file has no tensors: it is only a vocabulary, or its tensors are missing");
    return STATUS_OK;
}

enum status model_build(const struct gguf *gguf, const struct precision_rule *rules, size_t n_rules,
                        struct model_graph *model, struct error *error)
{
    return model_build_adapted(gguf, rules, n_rules, NULL, model, error);
}

enum status model_build_adapted(const struct gguf *gguf, const struct precision_rule *rules, size_t n_rules,
                                const struct adapters *adapters, struct model_graph *model, struct error *error)
{
    const struct architecture *architecture = NULL;
    memset(model, 0, sizeof(*model));
    enum status status = check_is_model(gguf, error);
    if (status == STATUS_OK)
        status = find_architecture(gguf, &architecture, error);
    if (status == STATUS_OK)
        status = model_read_hyperparameters(gguf, &model->h, error);
    if (status != STATUS_OK)
        return status;
    graph_init(&model->graph);
    model->graph.rules = rules;
    model->graph.n_rules = n_rules;
    if (adapters != NULL) {
        model->graph.lora_pairs = adapters->pairs;
        model->graph.n_lora_pairs = adapters->n_pairs;
    }
    struct builder builder = {
        .gguf = gguf,
        .model = model,
        .graph = &model->graph,
        .h = &model->h,
        .read = arena_alloc_array(&model->graph.arena, gguf->n_values, sizeof(bool)),
        .used = arena_alloc_array(&model->graph.arena, gguf->n_tensors, sizeof(bool)),
    };
    if (builder.read == NULL || builder.used == NULL) {
        error_memory(&model->graph.error, "the graph");
    } else {
        architecture->build(&builder);
        build_check_unread(&builder);
        if (adapters != NULL && model->graph.error.status == STATUS_OK)
            adapters_check_used(adapters, &model->graph.error);
    }
    if (model->graph.error.status != STATUS_OK) {
        if (error != NULL)
            *error = model->graph.error;
        status = model->graph.error.status;
        model_graph_free(model);
    }
    return status;
}

void model_graph_free(struct model_graph *model)
{
    graph_free(&model->graph);
    memset(model, 0, sizeof(*model));
}
