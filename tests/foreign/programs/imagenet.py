"""The shape of the ImageNet example: its arguments, its meters, and either the launcher's processes or its own."""

import argparse
import os

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.optim.lr_scheduler import StepLR
from torch.utils.data import DataLoader, Subset, TensorDataset
from torch.utils.data.distributed import DistributedSampler

parser = argparse.ArgumentParser(description="training of a small network on made-up pictures")
parser.add_argument("data", metavar="DIR", nargs="?", default="imagenet")
parser.add_argument("-a", "--arch", default="tiny")
parser.add_argument("-j", "--workers", default=0, type=int)
parser.add_argument("--epochs", default=2, type=int)
parser.add_argument("-b", "--batch-size", default=16, type=int)
parser.add_argument("--lr", "--learning-rate", default=0.1, type=float, dest="lr")
parser.add_argument("--world-size", default=-1, type=int)
parser.add_argument("--rank", default=-1, type=int)
parser.add_argument("--dist-url", default="env://")
parser.add_argument("--dist-backend", default="gloo")
parser.add_argument("--dummy", action="store_true")
parser.add_argument("--multiprocessing-distributed", action="store_true")

best_acc1 = 0


class AverageMeter:
    def __init__(self, name):
        self.name, self.sum, self.count = name, 0.0, 0

    def update(self, value, n=1):
        self.sum += value * n
        self.count += n

    def all_reduce(self):
        total = torch.tensor([self.sum, self.count], dtype=torch.float32)
        dist.all_reduce(total, dist.ReduceOp.SUM)
        self.sum, self.count = total.tolist()

    def __str__(self):
        return f"{self.name} {self.sum / self.count:.3f}"


def main():
    args = parser.parse_args()
    args.distributed = args.world_size > 1 or args.multiprocessing_distributed or "WORLD_SIZE" in os.environ
    per_node = 2
    if args.multiprocessing_distributed:
        args.world_size *= per_node
        mp.spawn(main_worker, nprocs=per_node, args=(per_node, args))
    else:
        main_worker(None, per_node, args)


def main_worker(gpu, per_node, args):
    global best_acc1
    if args.dist_url == "env://" and args.rank == -1:
        args.rank, args.world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    if args.multiprocessing_distributed:
        args.rank = args.rank * per_node + gpu
    dist.init_process_group(args.dist_backend, init_method=args.dist_url, world_size=args.world_size, rank=args.rank)
    torch.manual_seed(1)
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 10))
    model = nn.parallel.DistributedDataParallel(model)
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), args.lr, momentum=0.9, weight_decay=1e-4)
    scheduler = StepLR(optimizer, step_size=1, gamma=0.1)
    pictures = TensorDataset(torch.randn(100, 1, 8, 8), torch.arange(100) % 10)
    sampler = DistributedSampler(pictures)
    train_loader = DataLoader(pictures, args.batch_size, num_workers=args.workers, pin_memory=True, sampler=sampler)
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        train(train_loader, model, criterion, optimizer, epoch, args)
        acc1 = validate(pictures, model, criterion, args)
        scheduler.step()
        best_acc1 = max(acc1, best_acc1)
        if args.rank == 0:
            torch.save({"epoch": epoch + 1, "state_dict": model.state_dict()}, "checkpoint.pth.tar")
    print(f"rank {args.rank}: best accuracy {best_acc1:.2f}\n", end="", flush=True)
    dist.destroy_process_group()


def train(loader, model, criterion, optimizer, epoch, args):
    losses = AverageMeter("Loss")
    model.train()
    for images, target in loader:
        loss = criterion(model(images), target)
        losses.update(loss.item(), len(images))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"rank {args.rank} Epoch: [{epoch}] {losses} lr {optimizer.param_groups[0]['lr']:.4f}\n", end="", flush=True)


def validate(pictures, model, criterion, args):
    model.eval()
    losses, top1 = AverageMeter("Loss"), AverageMeter("Acc@1")
    mine = Subset(pictures, range(args.rank, len(pictures), args.world_size))
    with torch.no_grad():
        for images, target in DataLoader(mine, args.batch_size):
            output = model(images)
            losses.update(criterion(output, target).item(), len(images))
            top1.update((output.argmax(1) == target).float().mean().item() * 100, len(images))
    top1.all_reduce()
    print(f"rank {args.rank} * {top1}\n", end="", flush=True)
    return top1.sum / top1.count


if __name__ == "__main__":
    main()
