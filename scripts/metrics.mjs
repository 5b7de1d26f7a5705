/**
 * Generates the metrics reference from the calls that register them: `metrics.counter("name", "help", …)`. A call whose
 * name or help is not a string literal fails `npm run generate` and `test/docs.test.ts`.
 */
import { readdirSync, readFileSync } from "node:fs";
import { join, relative } from "node:path";

const CALL = /\bmetrics\s*\.\s*(counter|histogram|gauge|summary|total)\s*\(/g;
const TYPE = { counter: "counter", total: "counter", histogram: "histogram", gauge: "gauge", summary: "summary" };
/** Labels that a gauge gives with each value, or that come from a constant. */
const GAUGE_LABELS = {
  gateway_connections: ["gateway"],
  gateway_requests_in_flight: ["gateway"],
  gateway_mcp_sessions: ["backend"],
  gateway_mcp_children: ["backend"],
  gateway_build_info: ["version", "node"],
  gateway_store_up: ["kind"],
  gateway_controller_kind_unreadable: ["kind"],
  gateway_controller_kind_pending: ["kind"],
  gateway_config_generations: ["thread"],
  nodejs_eventloop_delay_seconds: ["quantile", "thread"],
  nodejs_heap_used_bytes: ["thread"],
  nodejs_heap_limit_bytes: ["thread"],
};

export function metricsPage(root, note) {
  const rows = metricRows(root);
  const groups = new Map();
  for (const row of rows) {
    const group = row.name.split("_")[0];
    groups.set(group, [...(groups.get(group) ?? []), row]);
  }
  const TITLES = {
    gateway: "The gateway",
    gen: "LLM calls (names of the OpenTelemetry conventions for generative AI)",
    process: "The process",
    nodejs: "The runtime",
  };
  const tables = [...groups].map(([group, list]) => {
    const lines = list.map(
      ({ name, type, labels, help }) =>
        `| \`${name}\` | ${type} | ${labels.map((label) => `\`${label}\``).join(", ")} | ${help} |`,
    );
    return `## ${TITLES[group] ?? group}\n\n| Metric | Type | Labels | Meaning |\n|---|---|---|---|\n${lines.join("\n")}\n`;
  });
  return `${note}\n# Metrics\n
\`/metrics\` of the admin address and of \`config.statsAddr\` shows these, and [OTLP](../monitor.md#opentelemetry) exports them under the
same names. A metric appears once there is something to count. A histogram has the series \`_bucket\`, \`_sum\` and \`_count\`. A family has at most
10,000 series; further label values share one series whose labels are \`other\`.\n
${tables.join("\n")}`;
}

export function metricRows(root) {
  const rows = [];
  for (const file of sources(join(root, "src"))) {
    const text = readFileSync(file, "utf8");
    for (const call of text.matchAll(CALL)) {
      const found = readCall(text, call.index + call[0].length);
      if (found === undefined)
        throw new Error(`${relative(root, file)}: a metric whose name and help are not written as strings`);
      const { name, help, rest } = found;
      const labels = GAUGE_LABELS[name] ?? labelsIn(rest, text);
      rows.push({ name, help: help.replaceAll("|", "\\|"), type: TYPE[call[1]], labels });
    }
  }
  const byName = new Map(rows.map((row) => [row.name, row]));
  return [...byName.values()].sort((a, b) => (a.name < b.name ? -1 : 1));
}

function sources(folder) {
  return readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile() && /\.ts$/.test(entry.name) && !/\.test\.ts$/.test(entry.name))
    .map((entry) => join(entry.parentPath ?? entry.path, entry.name))
    .filter((file) => !file.endsWith(join("lib", "log", "metrics.ts")))
    .sort();
}

/** The first two arguments as strings, and the text of the others. */
function readCall(text, start) {
  const found = /^\s*"([a-z0-9_]+)",\s*((?:"(?:[^"\\]|\\.)*"\s*\+?\s*)+),?/.exec(text.slice(start));
  if (found === null) return undefined;
  const help = [...found[2].matchAll(/"((?:[^"\\]|\\.)*)"/g)].map(([, part]) => JSON.parse(`"${part}"`)).join("");
  return { name: found[1], help, rest: argumentsAfter(text, start + found[0].length) };
}

function argumentsAfter(text, start) {
  let depth = 1;
  let end = start;
  while (end < text.length && depth > 0) {
    if ("([{".includes(text[end])) depth += 1;
    else if (")]}".includes(text[end])) depth -= 1;
    end += 1;
  }
  return text.slice(start, end - 1);
}

/** The last list of the call; names of constants are looked up in the same file. */
function labelsIn(rest, text) {
  const list = /\[([^[\]]*)\]\s*,?\s*$/.exec(rest.trim())?.[1];
  const constant = /([A-Za-z]\w*)\s*,?\s*$/.exec(rest.trim())?.[1];
  if (list !== undefined) return list.split(",").flatMap((part) => labelsOf(part.trim(), text));
  return constant === undefined ? [] : labelsOf(constant, text);
}

function labelsOf(part, text) {
  if (part === "") return [];
  if (part.startsWith('"')) return [JSON.parse(part)];
  const name = part.replace(/^\.\.\./, "");
  const found = new RegExp(`const ${name}(?::[^=]*)? = \\[([^\\]]*)\\]`).exec(text)?.[1];
  return found === undefined || /\d/.test(found) ? [] : found.split(",").flatMap((one) => labelsOf(one.trim(), text));
}
