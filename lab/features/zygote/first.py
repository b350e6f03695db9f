"""The first process of a node whose agent a zygote forks: it waits for it, and ends as it does.

Its text comes over standard input and is run by the line that `ps` shows; not a byte that comes after it is read here:
that is for the agent. If something comes before there is one, an agent that imports torch itself is started for it: it
is sent where no zygote can be had. What comes from somebody who does not know that none was sent, ends that agent.
"""

import os
import select
import signal
import time

AFTER_A_SIGNAL = 128
"""Is added to the number of what killed the agent, as shells and Docker's own first process do."""
WAITS = b"waits\n"
"""Said on standard output once it is ready for the agent."""
DEADLINE_S = 300.0
"""So long it waits for one."""
_LOOK_S = 0.25


def supervise_agent(plain: "list[str]") -> None:
    """Wait for the agent, pass SIGTERM on to it, and end as it ended.

    Args:
        plain: what starts an agent here if something comes before one has come from outside, and said who it is by
            SIGUSR1; one that comes later is not wanted any more.
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
    """The pid of the agent, once it is there; 0: something has come before it."""
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
    """Take leave of every process that has ended."""
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
