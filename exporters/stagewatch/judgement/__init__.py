"""The judgement: from the facts about a job's ranks to the ranks at fault, and why.

`facts` has the known facts of a rank; `from_node` and `from_prometheus` gather them.  `judge`
decides by these alone, with `graph`, `roles`, `case` and `fault`; `memory` adds the results of
earlier looks, and `paging` decides when to page.  `limits` has all numbers, `words` and `sentence`
all prose.  `service` runs it for a cluster: `watch` looks at all jobs, `collector` exports verdicts
and `cases` keeps them as files.  `waits` and `wait_words` say who waits for whom, and `drawing`
draws it.  Open `judge` first.
"""
