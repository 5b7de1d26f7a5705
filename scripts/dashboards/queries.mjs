/**
 * The Prometheus queries of `deploy/`: the queries of the dashboard, the expressions of the alert rules, and the
 * metrics that they name. For `npm run test:dashboards`, and for the test that every named metric exists.
 */

/** Labels that look like metrics of ours, but are none. */
const LABELS = /^gen_ai_(?:token_type|operation_name|provider_name|response_model)$/;

export function alertRules(file) {
  return file.groups.flatMap((group) =>
    group.rules.map((rule) => ({ name: rule.alert ?? rule.record, expr: rule.expr })),
  );
}

export function dashboardQueries(dashboard) {
  return dashboard.panels
    .flatMap((panel) => [panel, ...(panel.panels ?? [])])
    .flatMap((panel) => (panel.targets ?? []).map(({ expr, refId }) => ({ title: `${panel.title} ${refId}`, expr })));
}

/** As Grafana fills the variables in for "all instances". */
export function filledQuery(expr, rateInterval) {
  return expr.replaceAll("$__rate_interval", rateInterval).replaceAll("$job", "gateway").replaceAll("$instance", ".*");
}

/** Names as the reference has them: without the parts of a histogram. */
export function metricsIn(expr) {
  const text = expr.replace(/"[^"]*"/g, "");
  const found = text.match(/\b(?:gateway|gen_ai|nodejs|process)_[a-z0-9_]+/g) ?? [];
  return [...new Set(found)]
    .filter((name) => !LABELS.test(name))
    .map((name) => name.replace(/_(?:bucket|sum|count)$/, ""));
}
