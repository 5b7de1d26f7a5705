/**
 * Describes every limit of the gateway: what it bounds and what happens beyond it. The values are read from the code (a
 * constant in a file, or the default of a setting), so the table is always current. A constant named `MAX_…` that is
 * missing here fails `test/docs.test.ts`. The rows of each area are in `scripts/limits/`.
 */
import { readdirSync, readFileSync } from "node:fs";
import { join, relative } from "node:path";
import { LLM_LIMITS } from "./limits/llm.mjs";
import { MCP_LIMITS } from "./limits/mcp.mjs";
import { POLICY_LIMITS } from "./limits/policies.mjs";
import { REQUEST_LIMITS } from "./limits/requests.mjs";
import { RUNNING_LIMITS } from "./limits/running.mjs";

/**
 * Rows: [constant, file below `src/`, meaning, behavior beyond the limit], [peer input, its limit, meaning, behavior
 * beyond], or [setting, meaning, behavior beyond].
 */
const LIMITS = { ...REQUEST_LIMITS, ...MCP_LIMITS, ...LLM_LIMITS, ...POLICY_LIMITS, ...RUNNING_LIMITS };

/** Constants that bound nothing that comes from outside: timers' own limits, the demo server, counters that wrap. */
const NOT_LISTED = new Set([
  "base/clock.ts MAX_DELAY_MS",
  "demo/mcp-server.ts MAX_SLOW_MS",
  "cel/functions/regex.ts MAX_GENERATION",
]);

/** Returns the page and the problems of the table. */
export function limitsPage(root, note, defaultOf, inputs) {
  const lines = [
    "# Limits",
    "",
    note,
    "",
    "Every queue, buffer, table and depth has a bound. Most are fixed; those with a setting say which. What is not listed passes",
    "through as a stream, with back-pressure. [Errors](errors.md) explains the codes.",
    "",
  ];
  for (const [title, rows] of Object.entries(LIMITS)) {
    lines.push(`## ${title}`, "", "| What | Limit | Setting | Beyond it |", "|---|---|---|---|");
    for (const row of rows) {
      const [name, ...rest] = row;
      const isSetting = rest.length === 2;
      const [what, beyond] = rest.slice(-2);
      const shown = isSetting
        ? withUnit(name, defaultOf(name))
        : name.includes("/")
          ? withUnit(rest[0], limitIn(inputs, name, rest[0]))
          : withUnit(name, constantIn(root, rest[0], name, inputs));
      lines.push(`| ${what} | ${shown} | ${isSetting ? `\`${name}\`` : ""} | ${beyond} |`);
    }
    lines.push("");
  }
  return `${lines.join("\n").trimEnd()}\n`;
}

/** Constants named as limits that have no row. Limits of peer inputs are in their own list. */
export function unlistedLimits(root) {
  const listed = new Set(Object.values(LIMITS).flatMap((rows) => rows.map(([name, file]) => `${file} ${name}`)));
  const source = join(root, "src");
  return readdirSync(source, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile() && /(?<!\.test)\.ts$/.test(entry.name))
    .map((entry) => relative(source, join(entry.parentPath ?? entry.path, entry.name)))
    .filter((file) => !file.startsWith("cli/"))
    .flatMap((file) =>
      [
        ...readFileSync(join(source, file), "utf8").matchAll(
          /^(?:export )?const (MAX_[A-Z_]+) = (?!(?:[A-Z_]+|peerInput\("[^"]+"\))\.max[A-Z])/gm,
        ),
      ].map(([, name]) => `${file} ${name}`),
    )
    .filter((one) => !listed.has(one) && !NOT_LISTED.has(one));
}

function limitIn(inputs, id, limit) {
  const found = inputs.find((input) => input.id === id)?.limits[limit];
  if (typeof found !== "number") throw new Error(`scripts/limits.mjs: ${id} has no fixed limit of ${limit}`);
  return found;
}

/** The number behind a constant or a member, which must be plain arithmetic, or a limit of an input. */
function constantIn(root, file, name, inputs) {
  const text = readFileSync(join(root, "src", file), "utf8");
  const listed = new RegExp(`^(?:export )?const ${name} = peerInput\\("([^"]+)"\\)\\.(max\\w+);`, "m").exec(text);
  if (listed) return inputs.find(({ id }) => id === listed[1])[listed[2]];
  const found = new RegExp(`(?:^(?:export )?const ${name} = |^ {2}${name}: )([\\d_.* ]+)[;,]`, "m").exec(text);
  if (!found) throw new Error(`scripts/limits.mjs: ${name} is not a number in src/${file}`);
  return found[1]
    .replaceAll("_", "")
    .split("*")
    .reduce((product, factor) => product * Number(factor), 1);
}

/** By the unit at the end of the name: `2 MiB`, `10 s`, `65,536`. */
function withUnit(name, value) {
  if (typeof value === "string") return value;
  if (/bytes$/i.test(name))
    return value % 2 ** 20 === 0 ? `${value / 2 ** 20} MiB` : value % 1024 === 0 ? `${value / 1024} KiB` : `${value} B`;
  if (/(?:_MS|Ms)$/.test(name))
    return value >= 3_600_000
      ? `${value / 3_600_000} h`
      : value >= 60_000
        ? `${value / 60_000} min`
        : `${value / 1000} s`;
  if (value < 1) return `${value * 100} %`;
  const grouped = value.toLocaleString("en-US");
  return /(?:CHARS|TEXT|PATTERN|LENGTH)$/.test(name)
    ? `${grouped} characters`
    : /BITS$/.test(name)
      ? `${grouped} bits`
      : grouped;
}
