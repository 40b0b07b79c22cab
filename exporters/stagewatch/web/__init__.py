"""The pages of an agent: `/metrics`, the status page, health checks.

A connection is accepted in `server`, read in `connection` and parsed in `message`; `security` asks
for certificates and passwords as `config_file` says; `agent_server` finds the page.  `metrics`
joins the texts that the collectors have left.  `facts` gathers what the status page says,
`status` renders it by `templates/`.  Open `agent_server` first.
"""
