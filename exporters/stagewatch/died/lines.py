"""What a line of a log means: which death it speaks of, and whether as its cause or its echo.

The wording is that of PyTorch, NCCL, CUDA, Python, Slurm, Ray, shells and the Linux kernel.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from stagewatch.died.causes import Death, Kind
from stagewatch.gpu.xids import meaning
from stagewatch.kernel_log.lines import parse_xid


@dataclass(frozen=True, slots=True)
class Meaning:
    """What a line says."""

    kind: Kind
    death: Death
    sure: bool = True
    plain: bool = False
    """An exception that has no class of its own: after another it is most often its consequence."""


def _row(
    kind: Kind, death: Death, *regexes: str, sure: bool = True
) -> tuple[re.Pattern[str], Meaning]:
    return re.compile("|".join(regexes)), Meaning(kind, death, sure)


_WRAPPERS = re.compile(
    r"ChildFailedError|ProcessRaisedException|CalledProcessError|RayTaskError|SystemExit"
    r"|ActorDiedError|RayActorError|WorkerCrashedError|FailedJobError|UncompletedJobError"
)
"""Exceptions of launchers, which say that a process that they watch has failed."""

_KILL = (
    r"\bSIGKILL\b|[Ss]ignal:? ?\(?9\b|(?:exit ?code|return code|status)\s*[:=]?\s*-9\b"
    r"|(?:exit|status)(?: status)?(?: code)? ?[:=]? ?137\b|code 137\b"
    r"|(?:^|[\s:>])Killed(?:$|\s\s|\s+[\w./-]*(?:python|torchrun|srun|bash))"
)

_ROWS = (
    # ---- What a line tells, also where it is one of an echo that quotes it ----------------------
    _row(
        Kind.WAITED,
        Death.COLLECTIVE_TIMEOUT,
        r"[Ww]atchdog caught collective operation timeout|collective operation timeout",
        r"detected by watchdog at work|watchdog got stuck|[Cc]ollective timeout",
    ),
    _row(Kind.OWN, Death.USER, r"Received [123] death signal|KeyboardInterrupt"),
    _row(Kind.OWN, Death.GPU, r"caused by previous Xid|NVMLError|NVML: "),
    # ---- What follows from elsewhere ------------------------------------------------------------
    _row(
        Kind.STATUS,
        Death.UNKNOWN,
        r"forcefully exiting via|Killing subprocess|closing signal SIG",
        r"NCCL operations have failed or timed out|Job step aborted|Force Terminated",
        r"Sending SIG\w+ to|sent SIG(?:TERM|KILL)",
    ),
    _row(
        Kind.ECHO,
        Death.NETWORK,
        r"communicator was aborted|ncclRemoteError|remote process exited|NCCL communicator .*abort",
        r"(?i:connection (?:was |is )?(?:reset|closed|aborted|lost|broken)|(?:reset|closed) by peer"
        r"|broken ?pipe|socket (?:was )?closed)",
        r"Failed to recv, got 0 bytes|failed to (?:recv|send), got|Connection refused.*\bc10d\b"
        r"|remote peer .*(?:gone|closed)|recvValue failed|sendBytes failed|recvBytes failed",
        sure=False,
    ),
    _row(
        Kind.ECHO,
        Death.CODE,
        r"DataLoader worker .{0,30}exited unexpectedly|died unexpectedly|terminated abruptly"
        r"|ray\.kill|worker .*died|Engine core proc.*died|EngineDeadError",
        sure=False,
    ),
    _row(
        Kind.HELPER,
        Death.HOST_MEMORY,
        r"DataLoader worker .{0,30}killed by signal: (?:Killed|Bus error)",
        sure=False,
    ),
    _row(Kind.HELPER, Death.CODE, r"DataLoader worker .{0,30}killed by signal: [^T]"),
    # ---- Memory ---------------------------------------------------------------------------------
    _row(
        Kind.OWN,
        Death.HOST_MEMORY,
        r"\boom[-_]kill|oom_reaper|Out of memory: Kill|[Mm]emory cgroup out of memory",
        r"\bMemoryError\b|std::bad_alloc|DefaultCPUAllocator|not enough memory: you tried",
        r"\[Errno 12\]|[Cc](?:annot|an't|ould not) allocate memory|Unable to allocate [\d.]+ [KMG]",
        r"OOMKilled|: Out Of Memory\b|OUT_OF_MEMORY by Slurm|[Ee]xceeded (?:job|step) memory limit",
        r"ray\.exceptions\.OutOfMemoryError|node running low on memory|Exceeded memory limit",
        r"memory usage threshold of|killed due to memory pressure",
        r"(?:insufficient|out of) shared memory|unable to (?:write|resize|allocate).*shm",
        r"(?i:^(?:host|system|cpu)\b.{0,20}out of memory)",
    ),
    _row(
        Kind.OWN,
        Death.GPU_MEMORY,
        r"(?i:\b(?:cuda|hip|gpu|xpu|mps|nccl|cublas|vram)\b.{0,80}out of memory)",
        r"torch(?:\.cuda)?\.OutOfMemoryError|Caught OutOfMemoryError|^OutOfMemoryError",
        r"CUDA_ERROR_OUT_OF_MEMORY|cudaErrorMemoryAllocation|CU\w+_STATUS_ALLOC_FAILED",
        r"OOM when allocating tensor|RESOURCE_EXHAUSTED: .*(?:alloc|memory)",
        r"No available memory for the cache blocks|out of memory.{0,60}(?i:\bgpu\b|\bcuda\b)",
    ),
    # ---- The machine ----------------------------------------------------------------------------
    _row(
        Kind.OWN,
        Death.GPU,
        r"[Uu]ncorrectable (?:NVLink|ECC|memory)|ECC error|has fallen off the bus|GPU is lost",
        r"NVLink .*(?i:error|fail)|SXid|Unable to determine the device handle|Xid \d+",
        r"RmInitAdapter failed|nvidia-smi has failed|couldn't communicate with the NVIDIA driver",
    ),
    _row(
        Kind.OWN,
        Death.GPU,
        r"unspecified launch failure|CUDA_ERROR_LAUNCH_FAILED|hardware stack error|busy or unavail",
        r"CUDA driver (?:error|initialization)|CUDA unknown error|CUDNN_STATUS_(?:EXEC|INTERNAL)",
        r"CUDNN_STATUS_NOT_INITIALIZED|CUBLAS_STATUS_(?:EXEC|INTERNAL|NOT_INIT)|CUDA_ERROR_UNKNOWN",
        r"no CUDA-capable device|unhandled cuda error|No CUDA GPUs are available|HSA_STATUS_ERROR",
        sure=False,
    ),
    _row(
        Kind.OWN,
        Death.STORAGE,
        r"No space left on device|Disk quota exceeded|\[Errno (?:5|28|30|107|116|122)\]|ENOSPC",
        r"Input/output error|Stale (?:NFS )?file handle|Read-only file system|StorageFull",
        r"Transport endpoint is not connected|nfs: server .* not responding|I/O error|Remote I/O",
        r"PytorchStream(?:Reader|Writer) failed|inline_container|unexpected pos \d+ vs",
        r"[Dd]isk (?:is )?full|[Ff]ile system (?:is )?full|Lustre(?:Error)?:|MetadataIncomplete",
        r"HeaderTooLarge|InvalidHeaderDeserialization|EOFError: Ran out of input",
        r"UnpicklingError|[Cc]heckpoint.{0,60}(?:corrupt|truncated)|SlowDown\b",
    ),
    # ---- Who ended it ---------------------------------------------------------------------------
    _row(
        Kind.OWN,
        Death.TIME_LIMIT,
        r"DUE TO TIME LIMIT|TIMEOUT by Slurm|DEADLINE by Slurm|DeadlineExceeded\b.*active",
    ),
    _row(
        Kind.OWN,
        Death.PREEMPTION,
        r"DUE TO (?:PREEMPTION|JOB REQUEUE)|PREEMPTED by Slurm|job is preempted|[Ww]as preempted",
        r"(?i:spot (?:instance )?(?:interruption|termination|preempt)|instance .{0,20}preempted)",
        r"(?i:preemption (?:notice|signal|warning)|received preempt)|\bEvicted\b|TaintManagerEvict",
    ),
    _row(
        Kind.OWN,
        Death.NODE,
        r"DUE TO NODE FAIL|(?:NODE|BOOT)_FAIL by Slurm|Node failure on|NodeLost|node .* went down",
    ),
    _row(
        Kind.OWN,
        Death.USER,
        r"SIGINT\b|\bsignal 2\b|SIGHUP|Signal 1\b|CANCELLED by Slurm",
    ),
    _row(Kind.OWN, Death.USER, r"\*\*\* (?:JOB|STEP) \S+ ON \S+ CANCELLED AT", sure=False),
    _row(
        Kind.OWN,
        Death.USER,
        r"error: (?:unrecognized arguments|the following arguments are required|argument )",
        r"invalid choice:|can't open file|command not found|\[Errno (?:2|13)\]",
        r"FileNotFoundError|PermissionError|[Pp]ermission denied|GatedRepoError",
        r"RepositoryNotFoundError|40[13] Client Error|is not a valid model identifier",
    ),
    # ---- The network ----------------------------------------------------------------------------
    _row(
        Kind.OWN,
        Death.NETWORK,
        r"NET/(?:IB|OFI|Socket|Plugin) ?: .*(?:[Ee]rror|[Ff]ail|[Tt]imed? ?out|Got completion)",
        r"Call to (?:connect|ibv_\w+|bind) .*(?:failed|timed out)|ibv_\w+ (?:call )?failed",
        sure=False,
    ),
    _row(
        Kind.WAITED,
        Death.COLLECTIVE_TIMEOUT,
        r"Timed out waiting \d+ ?ms for (?:recv|send)|monitored ?[Bb]arrier|heartbeat monitor",
        r"(?:NCCL|[Pp]rocess ?[Gg]roup|barrier).{0,120}?[Tt]imed? ?-?[Oo]ut",
    ),
    _row(
        Kind.OWN,
        Death.NETWORK,
        r"socketStartConnect|No route to host",
        r"[Nn]etwork is unreachable|Net device .* down|link (?:is )?down|socket interface found",
        r"Name or service not known|[Tt]emporary failure in name resolution|Max retries exceeded",
        r"EADDRINUSE|[Aa]ddress already in use|client socket has (?:timed out|failed to connect)",
        r"RendezvousTimeout|RendezvousConnection|Rendezvous.{0,40}timed? ?out",
        r"Read ?[Tt]imed? ?[Oo]ut|ConnectTimeout|Connection timed out|Connection refused",
        r"\[Errno (?:101|110|111|113)\]|store.{0,80}timed? ?out",
        sure=False,
    ),
    _row(
        Kind.ECHO,
        Death.NETWORK,
        r"nccl(?:System|Internal)Error|unhandled system error|Dist(?:Backend|Network|Store)Error",
        r"Connection(?:Reset|Aborted|Refused)Error|BrokenPipeError|EOFError|NCCL (?:error|failure)",
        sure=False,
    ),
    # ---- Ways to end ----------------------------------------------------------------------------
    _row(Kind.OWN, Death.HOST_MEMORY, _KILL, sure=False),
    _row(Kind.OWN, Death.HOST_MEMORY, r"Bus error|SIGBUS|exit ?code:? ?-7\b", sure=False),
    _row(
        Kind.ASKED,
        Death.PREEMPTION,
        r"got signal: 15|\bSIGTERM\b|death signal|killed by signal: Terminated|[Ss]ignal 15\b",
        r"(?:^|[\s:>])Terminated$|exit ?code\s*: ?-15\b",
        sure=False,
    ),
    _row(
        Kind.OWN,
        Death.CODE,
        r"[Ss]egmentation fault|SIGSEGV|exit ?code\s*:? ?-11\b|signal 11\b|return code = -11",
        r"device-side assert|illegal memory access|Floating point exception|Illegal instruction",
        r"\bSIGFPE\b|\bSIGILL\b|misaligned address|invalid device function|no kernel image",
    ),
    _row(
        Kind.STATUS,
        Death.CODE,
        r"SIGABRT|Aborted|exit ?code\s*:? ?-6\b|terminate called|exit ?code\s*:? ?[1-9]",
        r"(?i:\bloss\b(?: is| became)?\W{1,4}(?:nan|inf)\b)",
        r"(?:return code|exit status|status code)\s*=? ?[1-9]\d*\b|Exited with exit code",
        sure=False,
    ),
)

WORDS = (
    *(
        "error",
        "exception",
        "nccl warn",
        "fail",
        "kill",
        "memory",
        "oom",
        "signal",
        "sigterm",
        "xid",
    ),
    *("timed out", "timeout", "time out", "abort", "fault", "terminat", "exit", "exceed", "cancel"),
    *("preempt", "evict", "interrupt", "refused", "reset", "closed", "lost", "space", "denied"),
    *("stuck", "stale", "unreach", "respond", "nan", "invalid", "can't", "cannot", "not found"),
    *("corrupt", "lustre", "watchdog", "completion", "traceback", "root cause", "down", "unknown"),
)
"""One of them, in lower case, stands in every line that tells of a death."""
_HARMLESS = re.compile(
    r"\b(?:INFO|DEBUG|[A-Z]\w*Warning|WARNING|warning)\b|^\[W\d*[ :]|\]:?\s?\[W\d* |^W\d{4} "
)
_HEEDED = re.compile(
    r"NCCL WARN|slurm|srun|[Pp]reempt|\bXid\b|[Ss]ignal (?:15|SIGTERM)|death signal"
)
_EXCEPTION = re.compile(
    r"(?:[a-zA-Z_]\w*\.)*[A-Z_]\w*(?:Error|Exception|Interrupt|Exit|Failure|Timeout)\w*(?:\(\w*\))?"
    r"(?::|$)"
)
_ANY_EXCEPTION = re.compile(r"(?:[a-zA-Z_]\w*\.)*[A-Za-z_]\w*(?::\s|$)")


@lru_cache(maxsize=1024)
def of_line(text: str, in_traceback: bool = False) -> Meaning | None:
    """What a line says, without the prefixes of launchers and clocks; `None`: nothing of a death.

    `in_traceback`: it is the first line after the frames of a Python traceback.
    """
    exception = (_ANY_EXCEPTION if in_traceback else _EXCEPTION).match(text)
    if not exception and _HARMLESS.search(text) and not _HEEDED.search(text):
        return None
    return of_exception(text) if exception else _of_text(text)


def of_exception(text: str) -> Meaning:
    """What an exception says: its type, a colon and its message."""
    found = _of_text(text)
    if found is not None and found.kind is not Kind.STATUS:
        return found
    if _WRAPPERS.search(text):
        return Meaning(Kind.STATUS, Death.CODE, sure=False)
    return Meaning(Kind.OWN, Death.CODE, plain=True)


def _of_text(text: str) -> Meaning | None:
    at = text.find("NVRM:")
    xid = parse_xid(text[at:]) if at >= 0 else None
    if xid is not None and "caused by previous" not in text:
        severity = meaning(xid.xid).severity
        if severity == "info" or meaning(xid.xid).action == "look_for_an_earlier_xid":
            return None
        return Meaning(Kind.OWN, Death.CODE if severity == "application" else Death.GPU)
    return next((means for regex, means in _ROWS if regex.search(text)), None)
