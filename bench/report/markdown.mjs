/**
 * Renders the data of a run as Markdown.
 */

/** Titles of columns as they are shown; other names start with a capital letter. */
const TITLES = { nginx: "nginx", haproxy: "haproxy", agentgateway: "agentgateway" };

export function columnTitle(name) {
  return TITLES[name] ?? sentenceCase(name);
}

export function sentenceCase(text) {
  return text[0].toUpperCase() + text.slice(1);
}

export function shownValue(value, decimals) {
  if (value === undefined || value === null) return "–";
  return value >= 100 ? value.toFixed(0) : value.toFixed(decimals);
}

/** Other work ran on the machine when the run started. */
export function isBusy({ loadAverage }) {
  return loadAverage > 0.5;
}

/** The sentences at the top of a page: when, where, and how the run was made. */
export function summary({ date, minutes, command, isQuick, machine, absent }) {
  const sentences = [
    `One run of \`${command}\` on ${date}, which took ${minutes} minutes.`,
    `Machine: ${machine.processor}, ${machine.cores} cores, ${machine.memoryGiB} GiB, ${machine.system}; the load average was ${machine.loadAverage} at the start.`,
  ];
  if (isQuick) sentences.push("Quick runs have few rounds: they show the order of magnitude only.");
  if (isBusy(machine)) sentences.push("Other work ran on the machine, so small differences mean nothing.");
  if (absent.length > 0) sentences.push(`Not installed, so without a column: ${absent.join(", ")}.`);
  return sentences;
}

/** The remarks below a table: failed requests, and what the rows themselves note. */
export function notesOf({ rows }) {
  return rows.flatMap(({ title, errors = {}, notes = [] }) => [
    ...Object.entries(errors).map(
      ([name, count]) => `${sentenceCase(title)}: ${count} requests through ${columnTitle(name)} failed.`,
    ),
    ...notes.map((note) => `${sentenceCase(title)}: ${note}`),
  ]);
}

export function renderTable({ columns, rows, decimals, rowTitle = "Work" }) {
  return [
    `| ${rowTitle} | ${columns.map(columnTitle).join(" | ")} |`,
    `|---|${columns.map(() => "---:|").join("")}`,
    ...rows.map(
      ({ title, values }) =>
        `| ${sentenceCase(title)} | ${columns.map((name) => shownValue(values[name], decimals)).join(" | ")} |`,
    ),
  ].join("\n");
}

/** Sections with several units name them in their rows. */
export function leadOf({ text, unit }) {
  return `${text} ${unit === undefined ? "Lower" : `In ${unit}; lower`} is better.`;
}

export function renderSection(section) {
  const { title, failure } = section;
  if (failure !== undefined) return `## ${title}\n\nNot measured: ${failure}`;
  const notes = notesOf(section).map((note) => `- ${note}`);
  return [`## ${title}`, leadOf(section), renderTable(section), notes.join("\n")]
    .filter((part) => part !== "")
    .join("\n\n");
}

export function renderPrograms(programs) {
  return [
    "| Program | Version | Build |",
    "|---|---|---|",
    ...programs.map(({ name, release, build }) => `| ${columnTitle(name)} | ${release} | ${build ?? "as installed"} |`),
  ].join("\n");
}

export function renderMarkdown(data) {
  return `${[
    "# Benchmark report",
    summary(data).join("\n"),
    "Each program has one worker thread. The load generator and the backends run on the same machine.",
    ...data.sections.map(renderSection),
    "## Programs",
    renderPrograms(data.programs),
  ].join("\n\n")}\n`;
}
