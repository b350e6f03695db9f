"""Node code of strict order: calls of torch.distributed by the rules of a strict transport."""

HOOKS = {
    "worker": "transport:use_python",
    "recorder": "transport:watch_module",
    "recording": "transport:order_calls",
    "recorder_stop": "transport:finish_calls",
}
