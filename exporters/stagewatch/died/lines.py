"""What a line of a log means: the class of death, and whether the line is its cause or an echo.

The wording is that of PyTorch, NCCL, CUDA, Python, Slurm, Ray, shells and the Linux kernel.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache, lru_cache

from stagewatch.died.causes import Death, Kind
from stagewatch.gpu.xids import meaning
from stagewatch.kernel_log.lines import parse_xid


@dataclass(frozen=True, slots=True)
class Meaning:
    """The meaning of a line."""

    kind: Kind
    death: Death
    sure: bool = True
    plain: bool = False
    """An exception without a class of its own: after another one, most often a consequence."""


_WRAPPERS = re.compile(
    r"ChildFailedError|ProcessRaisedException|CalledProcessError|RayTaskError|SystemExit"
    r"|ActorDiedError|RayActorError|WorkerCrashedError|FailedJobError|UncompletedJobError"
)
"""Exceptions of launchers, which say that a process that they watch has failed."""


_TABLE = r"""
waited collective_timeout
    [Ww]atchdog caught collective operation timeout|collective operation timeout
    detected by watchdog at work|watchdog got stuck|[Cc]ollective timeout
own user
    Received [123] death signal|KeyboardInterrupt
own gpu
    caused by previous Xid|NVMLError|NVML:
own host_memory likely
    Worker (?:unexpectedly )?exits|exceeded K8s pod memory
status unknown
    forcefully exiting via|Killing subprocess|closing signal SIG
    NCCL operations have failed or timed out|Job step aborted|Force Terminated|Sending SIG\w+ to
    sent SIG(?:TERM|KILL)
echo network likely
    communicator was aborted|ncclRemoteError|remote process exited|NCCL communicator .*abort
    (?i:connection (?:was |is )?(?:reset|closed|aborted|lost|broken)|(?:reset|closed) by peer)
    (?i:(?:peer|remote(?: end)?|server) (?:has )?(?:closed|dropped|reset) (?:the )?connection)
    (?i:broken ?pipe|socket (?:was )?closed)
    Failed to recv, got 0 bytes|failed to (?:recv|send), got|Connection refused.*\bc10d\b
    remote peer .*(?:gone|closed)|recvValue failed|sendBytes failed|recvBytes failed
echo code likely
    DataLoader worker .{0,30}exited unexpectedly|died unexpectedly|terminated abruptly|ray\.kill
    worker .*died|Engine core proc.*died|EngineDeadError
helper host_memory likely
    DataLoader worker .{0,30}killed by signal: (?:Killed|Bus error)
helper code
    DataLoader worker .{0,30}killed by signal: [^T]
own host_memory
    \boom[-_]kill|oom_reaper|Out of memory: Kill|[Mm]emory cgroup out of memory|\bMemoryError\b
    std::bad_alloc|DefaultCPUAllocator|not enough memory: you tried|\[Errno 12\]
    [Cc](?:annot|an't|ould not) allocate memory|Unable to allocate [\d.]+ [KMG]|OOMKilled
    : Out Of Memory\b|OUT_OF_MEMORY by Slurm|[Ee]xceeded (?:job|step) memory limit
    ray\.exceptions\.OutOfMemoryError|node running low on memory|Exceeded memory limit
    memory usage threshold of|killed due to memory pressure
    (?:insufficient|out of) shared memory|unable to (?:write|resize|allocate).*shm
    (?i:^(?:host|system|cpu)\b.{0,20}out of memory)
own gpu_memory
    (?i:\b(?:cuda|hip|gpu|xpu|mps|nccl|cublas|vram)\b.{0,80}out of memory)
    torch(?:\.cuda)?\.OutOfMemoryError|Caught OutOfMemoryError|^OutOfMemoryError
    CUDA_ERROR_OUT_OF_MEMORY|cudaErrorMemoryAllocation|CU\w+_STATUS_ALLOC_FAILED
    OOM when allocating tensor|RESOURCE_EXHAUSTED: .*(?:alloc|memory)
    No available memory for the cache blocks|out of memory.{0,60}(?i:\bgpu\b|\bcuda\b)
own gpu
    [Uu]ncorrectable (?:NVLink|ECC|memory)|ECC error|has fallen off the bus|GPU is lost
    NVLink .*(?i:error|fail)|SXid|Unable to determine the device handle|Xid \d+
    RmInitAdapter failed|nvidia-smi has failed|couldn't communicate with the NVIDIA driver
own gpu likely
    unspecified launch failure|CUDA_ERROR_LAUNCH_FAILED|hardware stack error|busy or unavail
    CUDA driver (?:error|initialization)|CUDA unknown error|CUDNN_STATUS_(?:EXEC|INTERNAL)
    CUDNN_STATUS_NOT_INITIALIZED|CUBLAS_STATUS_(?:EXEC|INTERNAL|NOT_INIT)|CUDA_ERROR_UNKNOWN
    no CUDA-capable device|unhandled cuda error|No CUDA GPUs are available|HSA_STATUS_ERROR
own storage
    No space left on device|Disk quota exceeded|\[Errno (?:5|28|30|107|116|122)\]|ENOSPC
    Input/output error|Stale (?:NFS )?file handle|Read-only file system|StorageFull
    Transport endpoint is not connected|nfs: server .* not responding|I/O error|Remote I/O
    PytorchStream(?:Reader|Writer) failed|inline_container|unexpected pos \d+ vs
    [Dd]isk (?:is )?full|[Ff]ile system (?:is )?full|Lustre(?:Error)?:|MetadataIncomplete
    HeaderTooLarge|InvalidHeaderDeserialization|EOFError: Ran out of input|UnpicklingError
    [Cc]heckpoint.{0,60}(?:corrupt|truncated)|SlowDown\b
own time_limit
    DUE TO TIME LIMIT|TIMEOUT by Slurm|DEADLINE by Slurm|DeadlineExceeded\b.*active
own preemption
    DUE TO (?:PREEMPTION|JOB REQUEUE)|PREEMPTED by Slurm|job is preempted|[Ww]as preempted
    (?i:spot (?:instance )?(?:interruption|termination|preempt)|instance .{0,20}preempted)
    (?i:preemption (?:notice|signal|warning)|received preempt)|\bEvicted\b|TaintManagerEvict
own node
    DUE TO NODE FAIL|(?:NODE|BOOT)_FAIL by Slurm|Node failure on|NodeLost|node .* went down
own user
    SIGINT\b|\bsignal 2\b|SIGHUP|Signal 1\b|CANCELLED by Slurm
own user likely
    \*\*\* (?:JOB|STEP) \S+ ON \S+ CANCELLED AT
own user
    error: (?:unrecognized arguments|the following arguments are required|argument )
    invalid choice:|can't open file|command not found|\[Errno (?:2|13)\]|FileNotFoundError
    PermissionError|[Pp]ermission denied|GatedRepoError|RepositoryNotFoundError
    40[13] Client Error|is not a valid model identifier
own network likely
    NET/(?:IB|OFI|Socket|Plugin) ?: .*(?:[Ee]rror|[Ff]ail|[Tt]imed? ?out|Got completion)
    Call to (?:connect|ibv_\w+|bind) .*(?:failed|timed out)|ibv_\w+ (?:call )?failed
waited collective_timeout
    Timed out waiting \d+ ?ms for (?:recv|send)|monitored ?[Bb]arrier|heartbeat monitor
    (?:NCCL|[Pp]rocess ?[Gg]roup|barrier).{0,120}?[Tt]imed? ?-?[Oo]ut
own network likely
    socketStartConnect|No route to host|[Nn]etwork is unreachable|Net device .* down
    link (?:is )?down|socket interface found|Name or service not known
    [Tt]emporary failure in name resolution|Max retries exceeded|EADDRINUSE
    [Aa]ddress already in use|client socket has (?:timed out|failed to connect)
    RendezvousTimeout|RendezvousConnection|Rendezvous.{0,40}timed? ?out|Read ?[Tt]imed? ?[Oo]ut
    ConnectTimeout|Connection timed out|Connection refused|\[Errno (?:101|110|111|113)\]
    store.{0,80}timed? ?out
echo network likely
    nccl(?:System|Internal)Error|unhandled system error|Dist(?:Backend|Network|Store)Error
    Connection(?:Reset|Aborted|Refused)Error|BrokenPipeError|EOFError|NCCL (?:error|failure)
own host_memory likely
    \bSIGKILL\b|[Ss]ignal:? ?\(?9\b|(?:exit ?code|return code|status)\s*[:=]?\s*-9\b
    (?:exit|status)(?: status)?(?: code)? ?[:=]? ?137\b|code 137\b
    (?:^|[\s:>])Killed(?:$|\s\s|\s+[\w./-]*(?:python|torchrun|srun|bash))
    Bus error|SIGBUS|exit ?code:? ?-7\b
asked preemption likely
    got signal: 15|\bSIGTERM\b|death signal|killed by signal: Terminated|[Ss]ignal 15\b
    (?:^|[\s:>])Terminated$|exit ?code\s*: ?-15\b
own code
    [Ss]egmentation fault|SIGSEGV|exit ?code\s*:? ?-11\b|signal 11\b|return code = -11
    device-side assert|illegal memory access|Floating point exception|Illegal instruction
    \bSIGFPE\b|\bSIGILL\b|misaligned address|invalid device function|no kernel image
status code likely
    SIGABRT|Aborted|exit ?code\s*:? ?-6\b|terminate called|[Ee]xit ?[Cc]ode\s*:?\s*[1-9]
    (?i:\bloss\b(?: is| became)?\W{1,4}(?:nan|inf)\b)
    non-zero (?:exit|status)|(?:return code|exit status|status code)\s*=? ?[1-9]\d*\b
    Exited with exit code
"""
"""Kind, class, and `likely` if that is not sure; below, expressions for such lines.  The first
match counts."""


@cache  # and not when it is imported: most commands come to no line
def _rows() -> list[tuple[re.Pattern[str], Meaning]]:
    rows = []
    for row in re.split(r"\n(?=\S)", _TABLE.strip()):
        head, *regexes = row.split("\n")
        kind, death, *likely = head.split()
        means = Meaning(Kind[kind.upper()], Death[death.upper()], not likely)
        rows.append((re.compile("|".join(map(str.strip, regexes))), means))
    return rows


WORDS = (
    "error", "exception", "nccl warn", "fail", "kill", "memory", "oom", "signal", "sigterm", "xid",
    "timed out", "timeout", "time out", "abort", "fault", "terminat", "exit", "exceed", "cancel",
    "preempt", "evict", "interrupt", "refused", "reset", "closed", "lost", "space", "denied",
    "stuck", "stale", "unreach", "respond", "nan", "invalid", "can't", "cannot", "not found",
    "corrupt", "lustre", "watchdog", "completion", "traceback", "root cause", "down", "unknown",
)  # fmt: skip
"""Every line that says why a job died contains one of these, in lower case."""
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
    """The meaning of a line without prefixes of launchers and clocks; `None` if it is no cause.

    `in_traceback`: it is the first line after the frames of a Python traceback.
    """
    exception = (_ANY_EXCEPTION if in_traceback else _EXCEPTION).match(text)
    if not exception and _HARMLESS.search(text) and not _HEEDED.search(text):
        return None
    return of_exception(text) if exception else _of_text(text)


def of_exception(text: str) -> Meaning:
    """The meaning of an exception, given as its type, a colon and its message."""
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
    return next((means for regex, means in _rows() if regex.search(text)), None)
