"""The first process of a node whose agent a zygote forks: it waits for the agent, and exits with its status.

It gets its source over standard input. The command line that `ps` shows runs that source and reads no byte after it,
because the rest is for the agent. If input arrives before the zygote has forked an agent, this process starts an agent
that imports torch itself: no zygote is available. An agent that starts too late then gets SIGKILL.
"""

import os
import select
import signal
import time

AFTER_A_SIGNAL = 128
"""Added to the number of the signal that killed the agent, as shells and Docker's init do."""
WAITS = b"waits\n"
"""Written to standard output when this process is ready for the agent."""
DEADLINE_S = 300.0
"""Seconds to wait for an agent."""
_LOOK_S = 0.25


def supervise_agent(plain: "list[str]") -> None:
    """Wait for the agent, forward SIGTERM to it, and exit with its status.

    Args:
        plain: Command line of an agent, used if input arrives before a forked agent has reported itself by SIGUSR1. An
            agent that reports later is killed.
    """
    signals = {signal.SIGCHLD, signal.SIGTERM, signal.SIGUSR1}
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    signal.alarm(0)
    os.write(1, WAITS)
    agent = _wait_for_agent(signals) or os.fork()
    if not agent:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, signals)
        os.execv(plain[0], plain)
    while True:
        info = signal.sigwaitinfo(signals)
        if info.si_signo == signal.SIGTERM:
            os.kill(agent, signal.SIGTERM)
        elif info.si_signo == signal.SIGUSR1:
            os.kill(info.si_pid, signal.SIGKILL)
        _reap(agent)


def _wait_for_agent(signals: "set[signal.Signals]") -> int:
    """Return the pid of the agent once it has reported itself; 0: input arrived first."""
    end, unread = time.monotonic() + DEADLINE_S, False
    while time.monotonic() < end:
        info = signal.sigtimedwait(signals, 0.0 if unread else _LOOK_S)
        if info is not None and info.si_signo == signal.SIGUSR1:
            return info.si_pid
        if info is not None and info.si_signo == signal.SIGTERM:
            break
        if unread:
            return 0
        unread = bool(select.select([0], [], [], 0)[0])
    os._exit(1)


def _reap(agent: int) -> None:
    """Reap every process that has ended."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if not pid:
            return
        if pid == agent:
            code = os.waitstatus_to_exitcode(status)
            os._exit(code if code >= 0 else AFTER_A_SIGNAL - code)
