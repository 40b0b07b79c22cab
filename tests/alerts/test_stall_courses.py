"""A stall while agents start again or go away, and beside a job of the same name elsewhere."""

from __future__ import annotations

import pytest

from tests.alerts.courses import Case, Courses, patient
from tests.alerts.promtool import needs_promtool, series

pytestmark = [needs_promtool, patient, pytest.mark.xdist_group("stall_courses")]

RULES = ("stalls.rules.yaml", "stages.rules.yaml")
played = Courses(RULES)
LENGTH = 90
"""Looks in a course, two seconds apart."""
ACCUSED = "count by (cluster, node, rank, evidence) (job:rl_stall:culprit)"
FIRING = 'count by (alertname) (ALERTS{alertstate="firing"})'
PAGES = 'count by (alertname) (ALERTS{alertstate="firing", severity="critical"})'


class Course:
    """Input series of a job of eight ranks on two nodes; rank 5 of node n2 is parked, the others
    spin inside a collective, from the beginning on."""

    def __init__(
        self, cluster: str = "c", *, odd: bool = True, sequence: int = 220, gap: str = "4.0"
    ) -> None:
        self.given: dict[str, str] = {}
        job = {"cluster": cluster, "job_id": "540", "role": "train"}
        for node in ("n1", "n2"):
            teach = {**job, "node": node, "stage": "train"}
            for bound in (gap, "+Inf"):
                self._add("rl_progress_gap_seconds_bucket", f"90x{LENGTH}", **teach, le=bound)
            self._add("rl_progress_gap_seconds_count", f"90x{LENGTH}", **teach)
        for rank in range(8):
            who = {**job, "node": f"n{1 + rank // 4}", "rank": rank}
            self._add("rl_rank_up", f"1x{LENGTH}", **who)
            self._add("rl_rank_info", f"1x{LENGTH}", **who, pid=100 + rank, uuid=f"G{rank}")
            for name, labels in (
                ("rl_rank_progress_age_seconds", {}),
                ("rl_rank_stage_open_seconds", {"stage": "train"}),
            ):
                self._add(name, f"0+2x{LENGTH}" if odd else f"1x{LENGTH}", **who, **labels)
            behind = odd and rank == 5
            self._add(
                "rl_rank_wait_class",
                f"1x{LENGTH}",
                **who,
                **{"class": "parked" if behind else "spin"},
            )
            self._add("rl_rank_collective_seq", f"{sequence - behind}x{LENGTH}", **who, group="w")
            self._add("rl_rank_group_size", f"8x{LENGTH}", **who, group="w")
            if odd and not behind:
                call = {"group": "w", "op": "all_reduce"}
                name = "rl_rank_collective_inside_seconds"
                self._add(name, f"1+2x{LENGTH}", **who, **call)

    def _add(self, name: str, values: str, **labels: object) -> None:
        self.given[series(name, **labels)] = values

    def drop(self, name: str) -> None:
        """Without a metric."""
        self.given = {key: value for key, value in self.given.items() if not key.startswith(name)}

    def reclassify(self, wait_class: str, *, stage: str = "train") -> None:
        """All ranks wait alike, in this stage."""
        self.given = {
            key.replace('class="spin"', f'class="{wait_class}"')
            .replace('class="parked"', f'class="{wait_class}"')
            .replace('stage="train"', f'stage="{stage}"'): values
            for key, values in self.given.items()
        }

    def outside_of_stages(self, rank: int) -> None:
        """One rank waits in no stage, as for a queue."""
        self.given = {
            key.replace('stage="train"', 'stage="idle"') if f'rank="{rank}"' in key else key: values
            for key, values in self.given.items()
        }

    def agent_starts_again(self, node: str, gone: int, unknown: int, at: int = 30) -> None:
        """Its series end at a look and are back some looks later, its ranks' classes unknown for
        some more."""
        for key, values in list(self.given.items()):
            if f'node="{node}"' not in key:
                continue
            first, _, step = values.partition("x")[0].partition("+")
            begin = float(first) + (at + gone) * float(step or 0)
            rest = LENGTH - at - gone
            again = f"{begin}{f'+{step}' if step else ''}"
            if key.startswith("rl_rank_wait_class") and unknown:
                self.given[key] = f"{values.split('x')[0]}x{at - 1} stale _x{gone + unknown - 1} "
                self.given[key] += f"{again}x{rest - unknown}"
                kind = key[key.index('class="') :]
                self.given[key.replace(kind, 'class="unknown"}')] = (
                    f"_x{at + gone} 1x{unknown - 1} stale"
                )
            else:
                self.given[key] = (
                    f"{values.split('x')[0]}x{at - 1} stale _x{gone - 1} {again}x{rest}"
                )

    def scrape_seldom(self, node: str, first: int) -> None:
        """Every seventh look alone sees its series, from this one on."""
        for key, values in self.given.items():
            if f'node="{node}"' in key:
                begin, _, step = values.partition("x")[0].partition("+")
                self.given[key] = " ".join(
                    "_" if (look - first) % 7 else f"{float(begin) + look * float(step or 0)}"
                    for look in range(LENGTH)
                )

    def agent_goes_away(self, node: str, at: int = 30) -> None:
        """Its series end."""
        for key, values in self.given.items():
            if f'node="{node}"' in key:
                self.given[key] = f"{values.split('x')[0]}x{at - 1} stale"


def culprit(rank: int, evidence: str, cluster: str = "c") -> dict[str, float]:
    labels = {"cluster": cluster, "node": f"n{1 + rank // 4}", "rank": rank, "evidence": evidence}
    return {series("", **labels): 1.0}


def firing(*alerts: str) -> dict[str, float]:
    return {series("", alertname=name): 1.0 for name in alerts}


NAMED = firing("StallSuspected", "StalledHeartbeat", "BusyPollHang", "RankHoldsUpJob")


@played()
def test_the_agent_of_the_culprits_peers_starts_again() -> Case:
    """The verdict stands meanwhile, and nobody else is named: looks 30 to 34 miss the node, at 35
    to 37 it does not know yet how its ranks wait.  The page comes as it would have."""
    course = Course()
    course.agent_starts_again("n1", gone=5, unknown=3)
    known = culprit(5, "awaited")
    moments = [f"{2 * look}s" for look in range(28, 50)]
    return Case(
        course.given,
        [(ACCUSED, moment, known) for moment in moments]
        + [(PAGES, moment, {}) for moment in moments[:3]]
        + [(FIRING, "98s", NAMED)],
    )


@played()
def test_nobody_is_named_where_two_nodes_that_stand_still_are_scraped_at_different_moments() -> (
    Case
):
    """What was scraped of the second node looks as if its ranks had just made marks of progress."""
    course = Course()
    course.reclassify("spin")
    course.drop("rl_rank_collective")
    for rank in range(8):
        who = {"cluster": "c", "job_id": "540", "role": "train", "node": f"n{1 + rank // 4}"}
        age = series("rl_rank_step_age_seconds", **who, rank=rank)
        course.given[age] = f"20+2x{LENGTH}"
    course.scrape_seldom("n1", 0)
    course.scrape_seldom("n2", 4)
    active = [(ACCUSED, f"{2 * look}s", {}) for look in range(LENGTH)]
    return Case(course.given, [*active, ("count(job:rl_stall:active)", "60s", {"{}": 1.0})])


@played()
def test_the_agent_of_the_culprit_starts_again() -> Case:
    """While it is away nobody is named, and nobody is paged for a rank that is merely not seen;
    then the same rank is named as before."""
    course = Course()
    course.agent_starts_again("n2", gone=3, unknown=2)
    known = culprit(5, "awaited")
    expected = [(ACCUSED, "58s", known)]
    expected += [(ACCUSED, f"{2 * look}s", {}) for look in (30, 31, 32)]
    expected += [(ACCUSED, f"{2 * look}s", known) for look in range(33, 50)]
    expected.append((FIRING, "98s", NAMED))
    return Case(course.given, expected)


@played()
def test_without_the_agent_of_its_peers_the_culprit_is_still_named() -> Case:
    course = Course()
    course.agent_goes_away("n1")
    known = culprit(5, "awaited")
    return Case(
        course.given,
        [(ACCUSED, f"{2 * look}s", known) for look in range(28, 80)] + [(FIRING, "150s", NAMED)],
    )


@played((True, True), (False, True), (True, False))
def test_a_node_that_is_gone_with_its_agent_is_named_after_half_a_minute(
    scraped: bool, sized: bool
) -> Case:
    """Its target is down, or is not there any more; its ranks are told, and no other rank; also
    where nobody knows how many members the group has."""
    course = Course()
    if not sized:
        course.drop("rl_rank_group_size")
    course.agent_goes_away("n2", at=20)
    up = {"cluster": "c", "job": "stagewatch"}
    course.given[series("up", **up, node="n1")] = f"1x{LENGTH}"
    course.given[series("up", **up, node="n2")] = "1x19 0x70" if scraped else "1x19 stale"
    lost = [culprit(rank, "node_lost") for rank in (4, 5, 6, 7)]
    nodes = {key: value for one in lost for key, value in one.items()}
    return Case(
        course.given,
        [
            (ACCUSED, "38s", culprit(5, "awaited")),
            (ACCUSED, "60s", {}),
            (ACCUSED, "76s", nodes),
            (ACCUSED, "150s", nodes),
            (PAGES, "60s", {}),
            (PAGES, "150s", firing("NodeLostWithRanks")),
        ],
    )


@played((True,), (False,))
def test_a_role_that_is_lost_with_its_node_is_what_the_others_wait_for(lost: bool) -> Case:
    """Rank 5 waits in no stage, as for a queue; all ranks of the other role were on a node that is
    gone, or the trainers alone are left since the others have ended."""
    course = Course()
    course.outside_of_stages(5)
    for node, seen in (("n1", f"1x{LENGTH}"), ("n2", f"1x{LENGTH}"), ("n3", "1x13 0x76")):
        up = {"cluster": "c", "job": "stagewatch", "node": node}
        course.given[series("up", **up)] = seen if lost else f"1x{LENGTH}"
    for rank in (0, 1):
        who = {"cluster": "c", "job_id": "540", "role": "rollout", "node": "n3", "rank": rank}
        course.given[series("rl_rank_up", **who)] = "1x13 stale"
        course.given[series("rl_rank_progress_age_seconds", **who)] = "1x13 stale"
    here = culprit(5, "left_loop_early")
    labels = {"cluster": "c", "node": "n3", "evidence": "node_lost"}
    there = {series("", **labels, rank=rank): 1.0 for rank in (0, 1)}
    page = firing("NodeLostWithRanks") if lost else firing("LeftLoopEarly", "BusyPollHang")
    return Case(
        course.given,
        [
            (ACCUSED, "36s", {}),
            (ACCUSED, "60s", {}),
            (ACCUSED, "64s", there if lost else here),
            (ACCUSED, "120s", there if lost else here),
            (PAGES, "150s", page),
        ],
    )


@played()
def test_a_role_that_was_young_when_its_node_was_lost_is_what_the_others_wait_for() -> Case:
    """Its ranks are missed later than the job is suspected: nobody is named before their absence
    is judged."""
    course = Course()
    course.outside_of_stages(5)
    for node, seen in (("n1", f"1x{LENGTH}"), ("n2", f"1x{LENGTH}"), ("n3", "1x13 0x76")):
        up = {"cluster": "c", "job": "stagewatch", "node": node}
        course.given[series("up", **up)] = seen
    who = {"cluster": "c", "job_id": "540", "role": "rollout", "node": "n3", "rank": 0}
    course.given[series("rl_rank_up", **who)] = "_x3 1x9 stale"
    lost = series("", cluster="c", node="n3", evidence="node_lost", rank=0)
    return Case(
        course.given,
        [
            *((ACCUSED, f"{seconds}s", {}) for seconds in range(30, 67, 2)),
            (ACCUSED, "68s", {lost: 1.0}),
            (ACCUSED, "120s", {lost: 1.0}),
        ],
    )


@played((50, True), (17, False))
def test_a_role_that_has_left_is_at_fault_if_the_others_stopped_soon(look: int, soon: bool) -> Case:
    """They stop at 110 s, all between two stages."""
    course = Course()
    course.reclassify("poll", stage="idle")
    course.drop("rl_rank_collective")
    longest = {"cluster": "c", "job_id": "540", "role": "train", "node": "n1", "stage": "train"}
    course.given[series("rl_progress_gap_longest_seconds", **longest)] = f"4x{LENGTH}"
    course.given = {
        key: f"0x54 0+2x{LENGTH - 55}" if values.startswith("0+2") else values
        for key, values in course.given.items()
    }
    who = {"cluster": "c", "job_id": "540", "role": "loader", "node": "n3", "rank": 0}
    course.given[series("rl_rank_up", **who)] = f"1x{look} stale"
    left = {series("", cluster="c", node="n3", rank=0, evidence="missing"): 1.0}
    return Case(course.given, [(ACCUSED, "140s", {}), (ACCUSED, "170s", left if soon else {})])


@played((True,), (False,))
def test_a_role_that_stands_as_a_whole_is_named_and_paged_for_once(alike: bool) -> Case:
    """Once its stacks have been seen, and are alike; not before the suspicion of all is old."""
    course = Course()
    course.outside_of_stages(5)
    longest = {"cluster": "c", "job_id": "540", "role": "train", "node": "n1", "stage": "train"}
    course.given[series("rl_progress_gap_longest_seconds", **longest)] = f"4x{LENGTH}"
    role = {"cluster": "c", "job_id": "540", "role": "rollout", "node": "n3"}
    course.given[series("rl_progress_gap_seconds_count", **role, stage="idle")] = f"90x{LENGTH}"
    for rank in (0, 1):
        who = {**role, "rank": rank}
        for name, values, labels in (
            ("rl_rank_up", "1", {}),
            ("rl_rank_progress_age_seconds", "0+2", {}),
            ("rl_rank_stage_open_seconds", "0+2", {"stage": "rollout"}),
            ("rl_rank_wait_class", "1", {"class": "parked"}),
        ):
            course.given[series(name, **who, **labels)] = f"{values}x{LENGTH}"
        place = {**who, "group": "a" if alike else f"a{rank}"}
        course.given[series("rl_rank_stack_group", **place)] = f"_x20 1x{LENGTH - 20}"
    both = {
        series("", cluster="c", node="n3", rank=rank, evidence="role_differs"): 1.0
        for rank in (0, 1)
    }
    return Case(
        course.given,
        [
            *((ACCUSED, f"{seconds}s", {}) for seconds in range(30, 60, 2)),
            (ACCUSED, "66s", both if alike else {}),
            (ACCUSED, "120s", both if alike else {}),
            (
                PAGES,
                "150s",
                firing("RoleHoldsUpJob") if alike else firing("Deadlock", "GroupStall"),
            ),
        ],
    )


@played((False, False), (True, False), (False, True))
def test_nobody_is_paged_for_a_job_that_makes_no_marks_unless_it_is_being_formed_or_one_has_died(
    forming: bool, died: bool
) -> Case:
    """It may be a server that nobody asks; that it stands still is told all the same."""
    course = Course()
    course.given = {
        key.replace('stage="train"', 'stage="init"').replace('group="w"', 'group="init"')
        if forming
        else key.replace('stage="train"', 'stage="init"'): values.replace("0+2x", "1800+2x")
        for key, values in course.given.items()
    }
    for rank in range(8):
        who = {"cluster": "c", "job_id": "540", "role": "train", "rank": rank}
        course.given[series("rl_rank_unmarked", **who, node=f"n{1 + rank // 4}")] = f"1x{LENGTH}"
    if died:
        course.given[series("rl_rank_up", **who | {"rank": 5}, node="n2")] = f"1x19 0x{LENGTH - 20}"
    pages = firing("RankHoldsUpJob", "BusyPollHang") if forming else {}
    return Case(
        course.given,
        [
            (ACCUSED, "90s", culprit(5, "process_gone" if died else "awaited")),
            (PAGES, "150s", firing("RankGone", "BusyPollHang") if died else pages),
        ],
    )


@played()
def test_jobs_of_one_name_on_two_clusters_are_kept_apart() -> Case:
    """One hangs; others are ahead of it: one hangs too, one is at work and has taught that it may
    take longer."""
    at_work = Course("b", odd=False, sequence=900, gap="256.0")
    given = Course("a").given | at_work.given | Course("d", sequence=900).given
    for cluster, when, node in (("a", 60, "n1"), ("b", 20, "n2")):
        failed = {"cluster": cluster, "job_id": "540", "role": "train", "node": node, "rank": 4}
        given[
            series(
                "rl_rank_first_failure_timestamp_seconds", **failed, stage="train", error="OSError"
            )
        ] = f"{when}x{LENGTH}"
    active = {
        series("", cluster=cluster, job_id="540", role="train"): 8.0 for cluster in ("a", "d")
    }
    named = culprit(5, "awaited", "a") | culprit(5, "awaited", "d")
    first = {
        series("", cluster="a", node="n1"): 60.0,
        series("", cluster="b", node="n2"): 20.0,
    }
    return Case(
        given,
        [
            (ACCUSED, "90s", named),
            ("max by (cluster, job_id, role) (job:rl_stall:active)", "90s", active),
            ("job:rl_stall:group_only", "90s", {}),
            ("max by (cluster, node) (job:rl_first_failure:timestamp_seconds)", "90s", first),
            ('job:rl_wasted_gpu_seconds:total{cluster="b"} > 0', "90s", {}),
        ],
    )


@played(("spin", True), ("parked", False))
def test_outside_of_every_stage_only_ranks_at_rest_are_idle(wait_class: str, stalled: bool) -> Case:
    """Between two jobs all are parked; ranks that poll there wait for something."""
    course = Course()
    course.drop("rl_rank_collective")
    course.reclassify(wait_class, stage="idle")
    excused = {} if stalled else {series("", excuse="idle"): 8.0}
    group = {series("", job_id="540"): 1.0} if stalled else {}
    return Case(
        course.given,
        [
            ("max by (excuse) (job:rl_stall:excused)", "90s", excused),
            ("max by (job_id) (job:rl_stall:group_only)", "90s", group),
        ],
    )


@played(("cleanup", "left_loop_early"), ("rollout", "awaited"), ("train", "awaited"))
def test_only_a_rank_asleep_outside_of_the_loop_has_left_it(stage: str, evidence: str) -> Case:
    course = Course()
    course.given = {
        key.replace('stage="train"', f'stage="{stage}"') if 'rank="5"' in key else key: values
        for key, values in course.given.items()
    }
    return Case(course.given, [(ACCUSED, "90s", culprit(5, evidence))])


@played((False,), (True,))
def test_an_odd_wait_accuses_only_who_waited_otherwise_before(waited_otherwise: bool) -> Case:
    """A pipeline's first stage sleeps for work while the others poll, in health as in a hang."""
    course = Course()
    course.drop("rl_rank_collective")
    later = {"rl_rank_progress_age_seconds", "rl_rank_stage_open_seconds"}
    for key in list(course.given):
        if key.partition("{")[0] in later:
            course.given[key] = "1x40 0+2x50"
    changed = dict(course.given)
    who = {"cluster": "c", "job_id": "540", "role": "train", "node": "n2", "rank": 5}
    changed[series("rl_rank_wait_class", **who, **{"class": "spin"})] = "1x40 stale"
    changed[series("rl_rank_wait_class", **who, **{"class": "parked"})] = "_x41 1x50"
    given, named = (changed, culprit(5, "odd_one_out")) if waited_otherwise else (course.given, {})
    return Case(given, [(ACCUSED, "120s", named), (ACCUSED, "170s", named)])


@played((True,), (False,))
def test_a_rank_left_behind_is_told_of_only_where_nobody_is_named(named: bool) -> Case:
    """Rank 5 is at fault, or all spin alike; rank 6 is also still in a stage that the rest has
    done."""
    course = Course()
    if not named:
        course.drop("rl_rank_collective")
        course.reclassify("spin")
    job = {"cluster": "c", "job_id": "540", "role": "train"}
    course.given[series("rl_stage_duration_seconds_count", **job, node="n1", stage="train")] = (
        f"90x{LENGTH}"
    )
    for rank in range(8):
        who = {**job, "node": f"n{1 + rank // 4}", "rank": rank, "stage": "train"}
        course.given[series("rl_rank_stage_last_seconds", **who)] = f"4x{LENGTH}"
        course.given[series("rl_rank_stage_completions_total", **who)] = (
            f"{10 if rank == 6 else 11}x{LENGTH}"
        )
    behind = {} if named else {series("", rank=6): 1.0}
    return Case(
        course.given,
        [
            ("max by (rank) (rank:rl_straggler:ratio) > bool 0", "90s", {series("", rank=6): 1.0}),
            ("max by (rank) (rank:rl_stall:stage_behind)", "90s", behind),
            (ACCUSED, "90s", culprit(5, "awaited") if named else {}),
        ],
    )
