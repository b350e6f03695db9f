"""Mistakes in lessons of training: gradients, metrics, DDP and what goes beyond it, checkpoints."""

from __future__ import annotations

from collections.abc import Sequence

from tests.engines.mutations.kinds import Calls, Check, Mutation, Note, Raises

MUTATIONS: dict[str, Sequence[Mutation]] = {
    "gradients/all_gather_functional": [
        Mutation(
            "own_rows(dist.get_rank())).backward()",
            "own_rows(dist.get_rank())).div(dist.get_world_size()).backward()",
            Note(0, "nn_functional_embedding_ratio", 3.0),
        ),
    ],
    "gradients/all_gather_no_gradient": [
        Mutation("0.0 * own.sum()", "0.1 * own.sum()", Note(0, "ratio", 0.0)),
    ],
    "gradients/all_gather_own_put_back": [
        Mutation(
            "scale * contrastive_loss", "contrastive_loss", Note(0, "weight_ratio_in_ddp_loss_times_world_size", 1.0)
        ),
    ],
    "gradients/all_gather_slice_backward": [
        Mutation("[dist.get_rank()]\n", "[0]\n", Note(0, "weight_ratio_in_ddp", 1 / 3)),
    ],
    "gradients/all_gather_sum_backward": [
        Mutation("        dist.all_reduce(gradient)\n", "", Note(0, "all_rows_embedding_ratio", 3.0)),
    ],
    "gradients/all_gather_variable_length": [
        Mutation(
            "longest) < sizes[:, None]", "longest) >= longest - sizes[:, None]", Note(0, "dim 0, own: ratio", 1.0)
        ),
        Mutation("if ctx.reduce_gradients", "if not ctx.reduce_gradients", Note(0, "dim 0, own: ratio", 1.0)),
        Mutation(".index_select(dim, is_data.nonzero().flatten())", "", Raises("split_sizes")),
    ],
    "gradients/info_nce": [
        Mutation("sum_over_ranks=True", "sum_over_ranks=False", Note(0, "losses_difference", 0.0)),
    ],
    "metrics/averaged_metrics": [
        Mutation("    dist.all_reduce(own_counts)\n", "", Note(0, "accuracy_difference", 0.0)),
        Mutation("    averaged /= world_size\n", "", Check("rank 0: note averaged: expected accuracy ")),
    ],
    "metrics/what_a_test_notices": [
        Mutation("        dist.all_reduce(gradient)\n", "", Note(0, "weights_are_equal", True, False)),
        Mutation("weights -= 0.5", "weights += 0.5", Note(0, "loss_is_lower", True, False)),
    ],
    "metrics/gathered_metrics": [
        Mutation(
            "logits[: len(test_set)], targets[: len(test_set)]", "logits, targets", Note(0, "accuracy_difference", 0.0)
        ),
        Mutation("stack(gathered, dim=1).flatten()", "cat(gathered)", Note(0, "in_order", True, False)),
    ],
    "ddp/batch_norm_buffers": [
        Mutation(
            "(model, broadcast_buffers=broadcast_buffers)",
            "(model, broadcast_buffers=False)",
            Note(1, "broadcast_difference_from_arithmetic", 0.0),
        ),
    ],
    "ddp/divided_loss": [
        Mutation("targets.numel()", "errors.numel()", Note(0, "ratio", 0.5, 1.0)),
    ],
    "ddp/extra_reduction": [
        Mutation("dist.all_reduce(parameter.grad)", "pass", Note(0, "ratio", 2.0, 1.0)),
    ],
    "ddp/find_unused_parameters": [
        Mutation("    model.zero_grad()\n", "", Note(0, "trunk.weight equals one process", True, False)),
        Mutation(", find_unused_parameters=True", "", Raises("Expected to have finished reduction")),
    ],
    "ddp/fp16_compression": [
        Mutation(".div_(dist.get_world_size())", "", Note(0, "by_hand_is_the_same", True, False)),
    ],
    "ddp/join": [
        Mutation(
            "divide_by_initial_world_size=divide_by_initial_world_size",
            "divide_by_initial_world_size=True",
            Note(0, "by_ranks_that_train_difference", 0.0),
        ),
    ],
    "ddp/large_model": [
        Mutation("inputs.chunk(world_size)[rank]", "inputs.chunk(world_size)[0]", Note(0, "difference", 0.0)),
    ],
    "ddp/no_sync": [
        Mutation(" / len(step)", "", Note(0, "difference", 0.0)),
        Mutation("use_no_sync=True", "use_no_sync=False", Note(0, "bytes_sent", 1980, 7920)),
    ],
    "ddp/static_graph": [
        Mutation("static_graph=static_graph", "static_graph=True", Note(0, "refused_without", True, False)),
    ],
    "ddp/sync_batch_norm": [
        Mutation(
            "total = gradient.clone()\n        dist.all_reduce(total)\n",
            "total = gradient.clone()\n",
            Note(0, "synced_difference", 0.0),
        ),
    ],
    "ddp/toy_loop": [
        Mutation("DistributedDataParallel(ToyModel())", "ToyModel()", Note(0, "difference_after_each_step", [0.0] * 8)),
        Mutation(
            "fingerprint(weights)",
            "fingerprint(weights + 1e-6 * rank)",
            Check("rank 1: note fingerprint_after_each_step:"),
        ),
    ],
    "beyond_ddp/fully_sharded": [
        Mutation(
            "inputs.chunk(world_size, dim=1)[rank]", "inputs.chunk(world_size, dim=1)[0]", Note(0, "difference", 0.0)
        ),
    ],
    "beyond_ddp/pipeline": [
        Mutation(") / MICRO_BATCHES", ")", Note(0, "difference", 0.0)),
        Mutation(
            "stages - 1 - stage)",
            "stages - stage)",
            Note(
                0,
                "order",
                ["F0", "F1", "B0", "F2", "B1", "F3", "B2", "B3"],
                ["F0", "F1", "F2", "B0", "F3", "B1", "B2", "B3"],
            ),
        ),
    ],
    "beyond_ddp/tensor_parallel": [
        Mutation("last_weight.T) + last.bias", "last_weight.T + last.bias)", Note(0, "output_difference", 0.0)),
        Mutation("        dist.all_reduce(gradient)\n", "", Note(0, "input_grad_difference", 0.0)),
    ],
    "beyond_ddp/zero_redundancy_optimizer": [
        Mutation(
            "inputs.chunk(world_size, dim=1)[rank]", "inputs.chunk(world_size, dim=1)[0]", Note(0, "difference", 0.0)
        ),
    ],
    "checkpoints/loading_memory": [
        Mutation("        dist.broadcast(tensor, src=0)\n", "        pass\n", Note(1, "loaded_tensors", True, False)),
    ],
    "checkpoints/rank0_loads_and_broadcasts": [
        Mutation("model.state_dict().values()", "list(model.parameters())", Note(0, "broadcasts", 9, 6)),
        Mutation("src=0", "src=1", Note(0, "difference_after", 0.0)),
    ],
    "checkpoints/rank0_saves_all_load": [
        Mutation("trained.state_dict()", "make_model().state_dict()", Note(0, "difference_after", 0.0)),
    ],
    "checkpoints/reshard": [
        Mutation("    dcp.load(", "    dict(", Note(0, "by_all_again_difference", 0.0)),
    ],
    "ddp/story": [
        Mutation("bucket_cap_mb=1)", "bucket_cap_mb=100)", Calls(0, "broadcast int32[1] from 0 during forward")),
        Mutation("outputs = ddp(", "outputs = model(", Calls(0, "barrier")),
        Mutation("    dist.barrier()", "    torch.zeros(1)", Calls(0, "nothing")),
    ],
    "checkpoints/resume": [
        Mutation(
            'if forget != "optimizer":', "if forget is None and False:", Note(0, "resumed_is_identical", True, False)
        ),
    ],
}
