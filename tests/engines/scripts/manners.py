"""Ends in unusual but legitimate ways. Argument: the way."""

import atexit
import os
import signal
import sys
import threading
import time

import torch
import torch.distributed as dist


def uses_atexit():
    atexit.register(print, "registered first, printed last")
    atexit.register(print, "printed by atexit")


def leaves_files_open():
    global log
    log = open(os.path.join(os.environ["LAB_SHARED"], sys.argv[2]), "w")
    log.write("never flushed by the script")


def leaves_threads_running():
    threading.Thread(target=lambda: (time.sleep(0.2), print("the thread has ended"))).start()
    print("the main thread has ended")


def leaves_a_daemon_thread_running():
    threading.Thread(target=time.sleep, args=(3600,), daemon=True).start()


def leaves_a_busy_daemon_thread_running():
    threading.Thread(target=count_for_ever, daemon=True).start()


def count_for_ever():
    global count
    count = 0
    while True:
        count += 1
        count_once()


def count_once():
    torch.ones(1)


def raises_in_a_thread():
    thread = threading.Thread(target=lambda: 1 / 0)
    thread.start()
    thread.join()
    print("the main thread goes on")


def changes_folder():
    os.chdir("/")
    print("now in", os.getcwd())


def removes_its_own_folder():
    import shutil

    shutil.rmtree(os.path.dirname(os.path.abspath(__file__)))


def exits_with(code):
    sys.exit(int(code))


def uses_threads():
    results = []
    threads = [threading.Thread(target=lambda: results.append(torch.ones(100, 100).sum().item())) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(sorted(set(results)))


def deletes_itself_from_modules():
    del sys.modules["__main__"]


def has_a_finalizer_that_prints():
    global held

    class Held:
        def __del__(self):
            print("finalized")

    held = Held()


def ignores_sigterm(culprit):
    """Everybody catches SIGTERM and carries on; one rank fails."""
    signal.signal(signal.SIGTERM, lambda *_: print("not now"))
    dist.init_process_group("gloo")
    dist.barrier()
    if dist.get_rank() == int(culprit):
        raise ValueError("enough")
    while True:
        time.sleep(0.05)


def handles_sigterm(culprit):
    """Everybody says goodbye on SIGTERM; one rank fails."""

    def leave(*_):
        print("saved a checkpoint")
        sys.exit(0)

    signal.signal(signal.SIGTERM, leave)
    dist.init_process_group("gloo")
    dist.barrier()
    if dist.get_rank() == int(culprit):
        raise ValueError("enough")
    while True:
        time.sleep(0.05)


def sleeps_while_one_fails(culprit):
    dist.init_process_group("gloo")
    dist.barrier()
    if dist.get_rank() == int(culprit):
        raise ValueError("enough")
    time.sleep(3600)


if __name__ == "__main__":
    globals()[sys.argv[1]](*(sys.argv[2:] if sys.argv[1] != "leaves_files_open" else ()))
