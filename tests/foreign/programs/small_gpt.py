"""A small language model: settings as globals, gradients accumulated over micro-batches."""

import contextlib
import math
import os

import torch
import torch.nn.functional as F
from torch import nn
from torch.distributed import destroy_process_group, init_process_group
from torch.nn.parallel import DistributedDataParallel as DDP

gradient_accumulation_steps = 6
batch_size, block_size, vocabulary, width = 4, 8, 16, 16
max_iters, eval_interval, eval_iters = 4, 2, 2
learning_rate, min_lr, warmup_iters = 1e-2, 1e-3, 1
grad_clip = 1.0
config = {k: v for k, v in globals().items() if not k.startswith("_") and isinstance(v, (int, float, str))}

ddp = int(os.environ.get("RANK", -1)) != -1
if ddp:
    init_process_group(backend="gloo")
    ddp_rank = int(os.environ["RANK"])
    ddp_world_size = int(os.environ["WORLD_SIZE"])
    master_process = ddp_rank == 0
    seed_offset = ddp_rank
    assert gradient_accumulation_steps % ddp_world_size == 0
    gradient_accumulation_steps //= ddp_world_size
else:
    master_process, seed_offset, ddp_world_size, ddp_rank = True, 0, 1, 0
tokens_per_iter = gradient_accumulation_steps * ddp_world_size * batch_size * block_size
if master_process:
    print(f"tokens per iteration will be: {tokens_per_iter:,}", flush=True)
torch.manual_seed(1337 + seed_offset)
ctx = torch.amp.autocast(device_type="cpu", dtype=torch.bfloat16, enabled=False)
text = torch.randint(vocabulary, (512,), generator=torch.Generator().manual_seed(0))


def get_batch():
    ix = torch.randint(len(text) - block_size, (batch_size,))
    x = torch.stack([text[i : i + block_size] for i in ix])
    y = torch.stack([text[i + 1 : i + 1 + block_size] for i in ix])
    return x, y


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = nn.Linear(width, 3 * width)
        self.mlp = nn.Sequential(
            nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width)
        )

    def forward(self, x):
        q, k, v = self.attention(x).split(width, dim=2)
        x = x + F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return x + self.mlp(x)


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocabulary, width), nn.Embedding(block_size, width)
        self.h = nn.ModuleList([Block() for _ in range(2)])
        self.lm_head = nn.Linear(width, vocabulary, bias=False)
        self.wte.weight = self.lm_head.weight

    def forward(self, x, targets):
        hidden = self.wte(x) + self.wpe(torch.arange(x.shape[1]))
        for block in self.h:
            hidden = block(hidden)
        logits = self.lm_head(hidden)
        return logits, F.cross_entropy(logits.view(-1, vocabulary), targets.view(-1))


model = GPT()
optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate, betas=(0.9, 0.95))
raw_model = model
if ddp:
    model = DDP(model)
    raw_model = model.module


@torch.no_grad()
def estimate_loss():
    raw_model.eval()
    losses = torch.tensor([raw_model(*get_batch())[1].item() for _ in range(eval_iters)])
    raw_model.train()
    return losses.mean()


def get_lr(it):
    if it < warmup_iters:
        return learning_rate * (it + 1) / (warmup_iters + 1)
    ratio = (it - warmup_iters) / (max_iters - warmup_iters)
    return min_lr + 0.5 * (1.0 + math.cos(math.pi * ratio)) * (learning_rate - min_lr)


X, Y = get_batch()
for iter_num in range(max_iters):
    for group in optimizer.param_groups:
        group["lr"] = get_lr(iter_num)
    if iter_num % eval_interval == 0 and master_process:
        print(f"step {iter_num}: loss {estimate_loss():.3f}", flush=True)
        torch.save({"model": raw_model.state_dict(), "iter_num": iter_num, "config": config}, "ckpt.pt")
    for micro_step in range(gradient_accumulation_steps):
        if ddp:
            model.require_backward_grad_sync = micro_step == gradient_accumulation_steps - 1
        with ctx, contextlib.nullcontext():
            logits, loss = model(X, Y)
            loss = loss / gradient_accumulation_steps
        X, Y = get_batch()
        loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), grad_clip)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    print(f"rank {ddp_rank} iter {iter_num}: loss {loss.item() * gradient_accumulation_steps:.3f}", flush=True)
if ddp:
    destroy_process_group()
