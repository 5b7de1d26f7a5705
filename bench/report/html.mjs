/**
 * Renders the data of a run as one HTML page with tables and bar charts. The page has no script and loads nothing.
 */
import { columnTitle, leadOf, notesOf, sentenceCase, shownValue, summary } from "./markdown.mjs";

const STYLE = `
:root { color-scheme: light dark; --text: #1b1f24; --muted: #57606a; --line: #d0d7de; --page: #ffffff; --bar: #8c959f; --ours: #0969da; }
@media (prefers-color-scheme: dark) { :root { --text: #e6edf3; --muted: #9198a1; --line: #3d444d; --page: #0d1117; --bar: #656c76; --ours: #4493f8; } }
body { font: 16px/1.5 system-ui, sans-serif; color: var(--text); background: var(--page); max-width: 60rem; margin: 0 auto; padding: 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.2rem; margin-top: 2.5rem; } h3 { font-size: 1rem; margin: 1.25rem 0 0.25rem; }
p, li { overflow-wrap: anywhere; } .muted { color: var(--muted); }
.scroll { overflow-x: auto; } table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: 0.875rem; }
th, td { border-bottom: 1px solid var(--line); padding: 0.25rem 0.75rem 0.25rem 0; text-align: right; } th:first-child, td:first-child { text-align: left; min-width: 9rem; }
svg { display: block; width: 100%; max-width: 40rem; height: auto; } svg text { font: 12px system-ui, sans-serif; fill: var(--text); }
.bar { fill: var(--bar); } .ours { fill: var(--ours); } code { font-size: 0.875em; }
`;

const LINE = 20;
const WIDTH = 380;
const LABELS = 120;
const NUMBERS = 56;

export function renderHtml(data) {
  const parts = [
    "<!doctype html>",
    '<html lang="en">',
    `<head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1"><title>Benchmark report</title><style>${STYLE}</style></head>`,
    "<body><main>",
    "<h1>Benchmark report</h1>",
    ...summary(data).map((sentence) => `<p>${withCode(sentence)}</p>`),
    "<p>Each program has one worker thread. The load generator and the backends run on the same machine.</p>",
    ...data.sections.map(renderSection),
    "<h2>Programs</h2>",
    renderPrograms(data.programs),
    '<p class="muted">The raw data is in <a href="report.json">report.json</a>.</p>',
    "</main></body></html>",
  ];
  return `${parts.join("\n")}\n`;
}

function renderSection(section) {
  const { title, rows, columns, decimals, failure, rowTitle = "Work" } = section;
  if (failure !== undefined) return `<h2>${escapeHtml(title)}</h2><p>Not measured: ${escapeHtml(failure)}</p>`;
  const head = [rowTitle, ...columns.map(columnTitle)]
    .map((cell) => `<th scope="col">${escapeHtml(cell)}</th>`)
    .join("");
  const body = rows
    .map(({ title: rowName, values }) => {
      const cells = columns.map((name) => `<td>${shownValue(values[name], decimals)}</td>`).join("");
      return `<tr><td>${escapeHtml(sentenceCase(rowName))}</td>${cells}</tr>`;
    })
    .join("\n");
  return [
    `<h2>${escapeHtml(title)}</h2>`,
    `<p>${withCode(leadOf(section))}</p>`,
    `<div class="scroll" tabindex="0" role="region" aria-label="${escapeHtml(title)}"><table><thead><tr>${head}</tr></thead><tbody>${body}</tbody></table></div>`,
    ...notesOf(section).map((note) => `<p class="muted">${escapeHtml(note)}</p>`),
    ...rows.map((row) => renderChart(row, section)),
  ].join("\n");
}

/** One bar per program. The numbers stand in the table too, so the picture is hidden from screen readers. */
function renderChart({ title, values }, { columns, decimals, unit }) {
  const bars = columns.filter((name) => typeof values[name] === "number");
  if (bars.length < 2) return "";
  const most = Math.max(...bars.map((name) => values[name]));
  const scale = most > 0 ? (WIDTH - LABELS - NUMBERS) / most : 0;
  const lines = bars.map((name, i) => {
    const width = Math.max(1, values[name] * scale).toFixed(1);
    const kind = name.startsWith("gateway") ? "ours" : "bar";
    const y = i * LINE;
    return `<text x="0" y="${y + 14}">${escapeHtml(columnTitle(name))}</text><rect class="${kind}" x="${LABELS}" y="${y + 4}" width="${width}" height="12"/><text x="${(LABELS + Number(width) + 6).toFixed(1)}" y="${y + 14}">${shownValue(values[name], decimals)}</text>`;
  });
  return `<h3>${escapeHtml(sentenceCase(title))}${unit === undefined ? "" : ` (${escapeHtml(unit)})`}</h3><svg viewBox="0 0 ${WIDTH} ${bars.length * LINE}" aria-hidden="true">${lines.join("")}</svg>`;
}

function renderPrograms(programs) {
  const rows = programs.map(
    ({ name, release, build }) =>
      `<li>${escapeHtml(columnTitle(name))}: ${escapeHtml(release)}, ${escapeHtml(build ?? "as installed")}</li>`,
  );
  return `<ul>${rows.join("")}</ul>`;
}

function withCode(text) {
  return escapeHtml(text).replaceAll(/`([^`]+)`/g, "<code>$1</code>");
}

function escapeHtml(text) {
  return text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;").replaceAll('"', "&quot;");
}
