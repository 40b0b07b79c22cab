"""The judgement: from the facts about a job's ranks to who is at fault, and why.

`facts` says what is known of a rank; `from_node` and `from_prometheus` gather it.  `judge` decides
from that alone, by `graph`, `roles`, `case` and `fault`; `memory` adds what earlier looks have
shown, `paging` when somebody is woken.  `limits` has every number, `words` and `sentence` all
prose.  `service` runs it for a cluster: `watch` looks at all jobs, `collector` exports verdicts and
`cases` keeps them as files.  `waits` and `wait_words` tell people who waits for whom, and `drawing`
draws it.  Open `judge` first.
"""
