"""Writes in every way in which programs write: a progress bar, bytes, halves of lines, programs that it starts."""

import os
import subprocess
import sys
import time

import torch.distributed as dist


class Bar:
    """A bar that is drawn over itself, as tqdm draws it."""

    def __init__(self, total, file):
        self.total, self.file = total, file
        self.interactive = file.isatty()

    def __iter__(self):
        for done in range(self.total):
            yield done
            part = (done + 1) * 10 // self.total
            self.file.write(f"\r{(done + 1) * 100 // self.total:3d}%|{'█' * part}{' ' * (10 - part)}| {done + 1}")
            self.file.flush()
        self.file.write("\n")


def main():
    dist.init_process_group("gloo")
    for _ in Bar(5, sys.stderr):
        pass
    for _ in Bar(3, sys.stdout):
        dist.barrier()
    print(sys.stdout.isatty(), sys.stdout.encoding, sys.stdin.read() == "")
    sys.stdout.write("half of a line, ")
    sys.stdout.flush()
    subprocess.run([sys.executable, "-c", "print('the rest from a child')"], check=True)
    os.system("echo from a shell, rank $RANK of $WORLD_SIZE")
    os.write(1, b"bytes \xc3\xa9\n")
    print("naïve ☃ 漢字", file=sys.stdout, flush=True)
    with os.fdopen(os.dup(1), "w") as again:
        again.write("through another descriptor\n")
    shown = subprocess.run(["sh", "-c", "echo out; echo err >&2; exit 3"], capture_output=True, text=True)
    print(shown.stdout.strip(), shown.stderr.strip(), shown.returncode)
    print("x" * 100_000)
    print("many", "words", sep=" · ", end=" end\n")
    print("no newline at the end", end="")
    time.sleep(0.01)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
