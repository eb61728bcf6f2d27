"""The sandbox refuses what its level promises to refuse, and the probe finds the right level."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from evaluator_samples import LIMITS, TASK, candidate, command, wrong_candidate

from actors.evaluator.judge import Judge
from actors.evaluator.sandbox import cgroup, landlock, paths, probe, sandbox, seccomp
from actors.prctl import prctl
from protocol.values import Outcome, Task, Verdict

Judged = Callable[[str], Verdict]
REFUSED = """
import ctypes, os, signal, socket
libc = ctypes.CDLL(None, use_errno=True)
def refused(act):
    try: result = act()
    except OSError: return True
    return isinstance(result, int) and result == -1
"""


def probed(*attempts: str) -> str:
    """Return a wrong candidate that raises at import unless all `attempts` are true."""
    code = "".join(f"if not ({attempt}): permitted.append({attempt!r})\n" for attempt in attempts)
    return wrong_candidate(f"{REFUSED}\npermitted = []\n{code}assert not permitted, permitted")


DANGEROUS = (
    "refused(lambda: libc.ptrace(0, 0, 0, 0))",
    "refused(lambda: libc.unshare(0x10000000))",
    "refused(lambda: libc.syscall(321, 0, 0, 0))",  # bpf
    "refused(lambda: libc.syscall(425, 1, 0))",  # io_uring_setup
    "refused(lambda: libc.syscall(56, 0x10000011, 0, 0, 0, 0))",  # clone with a new user
    "refused(lambda: libc.mount(b'none', b'/mnt', b'tmpfs', 0, None))",
    "refused(lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM))",
    "refused(lambda: socket.socket(socket.AF_UNIX).connect('/run/docker.sock'))",
    "refused(lambda: libc.shmget(0x5EC, 4096, 0o1600))",
)


def test_dangerous_calls_are_refused(judge: Judge, judged: Judged) -> None:
    """From level 2 on, calls that no kernel needs fail with EPERM, and the candidate runs on."""
    if judge.level >= 2 and platform.machine() == "x86_64":
        verdict = judged(probed(*DANGEROUS))
        assert verdict.verdict is Outcome.WRONG, verdict.reason


def test_a_permitted_call_is_named(judged: Judged) -> None:
    """A call that is not refused makes the candidate fail, so the test above can fail."""
    verdict = judged(probed("refused(os.getpid)", "refused(lambda: libc.ptrace(0, 0, 0, 0))"))
    assert verdict.verdict is Outcome.COMPILE_FAILED
    assert "getpid" in verdict.reason


def test_calls_of_compilers_and_torch_are_permitted(judged: Judged) -> None:
    """Threads, subprocesses, pipes, shared memory and files in scratch and /tmp work."""
    use = """
import mmap, multiprocessing, os, pathlib, subprocess, tempfile, threading
gcc = ["gcc", "-E", "-x", "c", "-"]
assert subprocess.run(gcc, input=b"int a;", capture_output=True).returncode == 0
thread = threading.Thread(target=lambda: None); thread.start(); thread.join()
with tempfile.TemporaryDirectory() as folder:
    (pathlib.Path(folder) / "a").write_text("x")
    os.rename(folder + "/a", folder + "/b")
shared = torch.zeros(4).share_memory_()
os.close(os.memfd_create("m")); mmap.mmap(-1, 4096).close()
"""
    verdict = judged(wrong_candidate(use))
    assert verdict.verdict is Outcome.WRONG, verdict


def test_many_processes_together_have_one_memory_limit(judge: Judge) -> None:
    """Processes that stay below the limit each, but not together, are `out_of_memory`."""
    hungry = (
        "import os, time\nfor _ in range(6):\n  if os.fork() == 0:\n"
        "    eaten = bytearray(b'x') * (700 << 20); time.sleep(60); os._exit(0)\n"
        "eaten = bytearray(b'x') * (900 << 20)\ntime.sleep(1)"
    )
    task = Task(name="small", source=TASK)
    verdict = judge.judge(task, candidate(before=hungry))
    assert isinstance(verdict, Verdict)
    if judge.level == 3:
        assert verdict.verdict in (Outcome.OUT_OF_MEMORY, Outcome.TIMED_OUT), verdict
    again = judge.judge(task, wrong_candidate())
    assert isinstance(again, Verdict)
    assert again.verdict is Outcome.WRONG


def test_secrets_are_not_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No secret in the home, the environment, /proc, the run folder or /tmp can be read."""
    home, run = tmp_path / "home", tmp_path / "run"
    for folder in (home, run):
        folder.mkdir()
        (folder / "key").write_text("canary")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("ANTHROPIC_API_KEY", "canary")
    with tempfile.NamedTemporaryFile(dir="/tmp", mode="w") as shared:
        shared.write("canary")
        shared.flush()
        files = [home / "key", run / "key", shared.name, f"/proc/{os.getpid()}/environ"]
        search = (
            f"import os\nfor file in {[str(file) for file in files]}:\n"
            "  try: assert b'canary' not in open(file, 'rb').read(), file\n"
            "  except OSError: pass\n"
            "assert 'canary' not in str(os.environ)\n"
        )
        judge = Judge("cpu", LIMITS, run / "scratch" / "e", hide=(run,))
        try:
            verdict = judge.judge(Task(name="small", source=TASK), wrong_candidate(search))
        finally:
            judge.close()
    assert isinstance(verdict, Verdict)
    if verdict.sandbox_level >= 2:
        assert verdict.verdict is Outcome.WRONG, verdict
    assert not (run / "scratch" / "e").exists()


def test_a_level_has_all_of_its_parts(tmp_path: Path) -> None:
    """Level 3 has namespaces, filter and control group; level 2 has landlock and filter."""
    ready = probe.probe_sandbox("cpu", tmp_path, paths.hidden_paths([Path.home()]))
    cgroup.remove_own_groups(ready.groups)
    if ready.level == 3:
        assert ready.namespaces
        assert ready.read_only
        assert ready.seccomp
        assert ready.groups
    if ready.level == 2:
        assert ready.landlock
        assert ready.seccomp
    assert list(tmp_path.iterdir()) == []
    assert not any(Path(group).exists() for group in ready.groups)


def test_a_sandbox_below_the_minimum_is_one_line_and_status_2(tmp_path: Path) -> None:
    """--min-sandbox N alone says whether the machine has that level."""
    ready = probe.probe_sandbox("cpu", tmp_path, paths.hidden_paths([Path.home()]))
    cgroup.remove_own_groups(ready.groups)
    for level in (ready.level, ready.level + 1):
        line = command("--min-sandbox", level, "--device", "cpu")
        done = subprocess.run(line, capture_output=True, text=True, check=False)
        assert done.stdout == ""
        if level <= ready.level:
            assert (0, "") == (done.returncode, done.stderr)
        else:
            assert done.returncode == 2
            assert f"level {level}" in done.stderr
            assert len(done.stderr.splitlines()) == 1


def test_without_namespaces_landlock_and_the_filter_give_level_2(tmp_path: Path) -> None:
    """They refuse files, tracing, network and secrets where no namespace can be made."""
    if landlock.abi() < landlock.MIN_ABI or not seccomp.is_supported():
        return  # this kernel gives level 1, which refuses none of this
    without = (
        "import sys\nfrom pathlib import Path\n"
        "from actors.evaluator.sandbox import cgroup, linux, probe\n"
        "def no(_flags): raise OSError('none here')\nlinux.unshare = no\n"
        "ready = probe.probe_sandbox('cpu', Path(sys.argv[1]))\n"
        "cgroup.remove_own_groups(ready.groups)\n"
        "print(ready.level, ready.namespaces, ready.landlock, ready.seccomp)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", without, tmp_path],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(paths.PROJECT_ROOT)},
    )
    assert done.stdout.split() == ["2", "False", "True", "True"], done.stderr


def test_a_filter_is_well_formed_for_every_architecture() -> None:
    """Instructions are whole, every jump is within the program, and a return is at its end."""
    variants = [(machine, alone) for machine in seccomp.MACHINES for alone in (True, False)]
    for machine, alone in variants:
        text = seccomp.program(machine, alone=alone)
        assert len(text) % 8 == 0
        count = len(text) // 8
        for number in range(count):
            code, yes, no = text[number * 8], text[number * 8 + 2], text[number * 8 + 3]
            if code & 7 == seccomp.JUMP:
                assert number + 1 + max(yes, no) < count
        assert text[-8] == seccomp.RETURN


def test_the_probe_does_not_confine_its_own_process() -> None:
    """Only the probe's throwaway children are confined."""
    assert prctl(39) == 0  # PR_GET_NO_NEW_PRIVS
    assert "Seccomp:\t0" in Path("/proc/self/status").read_text() or seccomp.is_supported()


def test_a_secret_with_the_prefix_of_a_setting_does_not_reach_a_child() -> None:
    """A child gets settings of CUDA and OpenMP, but no key with the prefix of such a setting."""
    given = {"OMP_NUM_THREADS": "3", "CUDA_VISIBLE_DEVICES": "0"}
    secrets = dict.fromkeys(["NVIDIA_API_KEY", "CUDA_TOKEN", "LC_ANYTHING", "OMP_PASSWORD"], "x")
    passed = sandbox.environment({**given, **secrets}, "/scratch")
    assert given.items() <= passed.items()
    assert not secrets.keys() & passed.keys()


def test_no_child_is_a_client_of_mps() -> None:
    """There, a round trip of the judge's process would not wait for a candidate's kernels."""
    given = {"CUDA_MPS_PIPE_DIRECTORY": "/run/mps", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "50"}
    passed = sandbox.environment(given, "/scratch")
    assert {"CUDA_MPS_PIPE_DIRECTORY": "/nonexistent"} == {
        name: value for name, value in passed.items() if name.startswith("CUDA_MPS_")
    }


def test_a_folder_above_a_home_is_not_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A script's folder is on Python's path; if a home is inside it, a child can't read it."""
    (tmp_path / "home").mkdir()
    (tmp_path / "other").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setattr(sys, "path", [str(tmp_path), str(tmp_path / "other"), *sys.path])
    found = paths.required_paths()
    assert str(tmp_path) not in found
    assert str(tmp_path / "other") in found


def test_a_child_has_the_nodes_of_cards_and_of_their_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of whole cards, of MIG instances (nvidia-caps), and of a card under WSL2 (dxg)."""
    names = ("nvidia0", "nvidiactl", "nvidia-uvm", "nvidia-caps", "dxg", "sda")
    for name in names:
        (tmp_path / name).touch()
    monkeypatch.setattr(paths, "Path", lambda path: Path(str(path).replace("/dev", str(tmp_path))))
    found = {Path(path).name for path in paths.device_nodes("cuda")}
    assert found & set(names) == set(names) - {"sda"}
    assert not {Path(path).name for path in paths.device_nodes("cpu")} & set(names)
