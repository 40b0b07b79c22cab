// The rules and boards of stagewatch as a mixin, for mixtool, Grafana's `grr`, Tanka and their like.
// Groups stay whole, since their rules read one another in their order: those with an alert are
// under prometheusAlerts, the others under prometheusRules.
local files = import 'files.libsonnet';

{
  _config+:: {
    // What the links of alerts begin with; if empty, the judge's pages for runbooks, and paths, which
    // Alertmanager's templates complete.
    runbooks: '',
    grafana: '',
  },

  local linked(annotations) = annotations {
    [if $._config.runbooks != '' && 'runbook_url' in annotations then 'runbook_url']:
      $._config.runbooks + '/' + std.splitLimit(annotations.runbook_url, '{{ end }}', 1)[1],
    [if $._config.grafana != '' && 'dashboard_url' in annotations then 'dashboard_url']:
      $._config.grafana + annotations.dashboard_url,
  },
  local groups = [
    group { rules: [if 'annotations' in rule then rule { annotations: linked(super.annotations) } else rule for rule in group.rules] }
    for file in files.rules
    for group in file.groups
  ],
  local alerts(group) = std.length([rule for rule in group.rules if 'alert' in rule]) > 0,

  prometheusAlerts+:: { groups+: [group for group in groups if alerts(group)] },
  prometheusRules+:: { groups+: [group for group in groups if !alerts(group)] },
  local known(variable) =
    if variable.name != 'runbooks' || $._config.runbooks == '' then variable
    else { name: variable.name, type: 'constant', query: $._config.runbooks, hide: variable.hide },
  grafanaDashboards+:: {
    [name]: files.boards[name] { templating+: { list: std.map(known, super.list) } }
    for name in std.objectFields(files.boards)
  },
}
