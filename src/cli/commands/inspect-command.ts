/**
 * `gwctl proxy memory|tasks|limits`, `gwctl budgets`, and `gwctl cel` print data from the admin interface.
 */

import { ADMIN_PATHS } from "../../admin/server/paths.ts";
import { newForm } from "../../base/form.ts";
import { ageText, bytesText } from "../../base/format.ts";
import { peerInput } from "../../base/peer-inputs.ts";
import { defined } from "../../json/json.ts";
import { readJson } from "../../json/read-json.ts";
import type { TargetFlags } from "../instance/target.ts";
import { FORMATS, formatOf, isData, printData } from "../terminal/output.ts";
import { type Cell, MESSAGE_CHARS, table } from "../terminal/table.ts";
import { CliError, type Paint, paintOf, printable, type Terminal, type Tone } from "../terminal/terminal.ts";
import { limitsText } from "../views/limits-view.ts";
import { counted, type Fields, fieldsOf, listOf, numberOf } from "../views/units.ts";
import { openTarget } from "./open-target.ts";

const RESPONSE = peerInput("gateway/admin-response");

const FIELDS = { memory: "process", tasks: "tasks", limits: "rules", budgets: "budgets" } as const;

export interface InspectFlags extends TargetFlags {
  readonly output?: string;
  readonly key?: string;
}

export async function inspect(
  what: keyof typeof FIELDS,
  name: string | undefined,
  flags: InspectFlags,
  terminal: Terminal,
): Promise<void> {
  const format = formatOf(flags.output, FORMATS);
  const { admin } = await openTarget(name, flags, terminal);
  try {
    const query = flags.key === undefined ? "" : `?${newForm({ key: flags.key })}`;
    const response = await admin.json<Record<string, unknown>>(`${ADMIN_PATHS[what]}${query}`, FIELDS[what]);
    const paint = paintOf(terminal);
    if (isData(format)) printData(response, format, terminal);
    else if (what === "memory") terminal.out(memoryText(response, paint));
    else if (what === "tasks") terminal.out(tasksText(response, paint));
    else if (what === "budgets" && listOf(response.budgets).length === 0) terminal.err("no budgets\n");
    else if (what === "budgets") terminal.out(budgetsText(listOf(response.budgets), paint));
    else if (listOf(response.rules).length === 0) terminal.err("no rate limits\n");
    else terminal.out(limitsText(listOf(response.rules), paint));
  } finally {
    admin.close();
  }
}

export async function cel(
  expression: string,
  flags: TargetFlags & { readonly request?: string; readonly exitCode?: boolean; readonly output?: string },
  terminal: Terminal,
): Promise<void> {
  const format = formatOf(flags.output, FORMATS);
  const { admin } = await openTarget(undefined, flags, terminal);
  const question = { expression, ...defined({ requestId: flags.request }) };
  try {
    const response = await admin.post(ADMIN_PATHS.cel, { body: JSON.stringify(question) });
    const evaluation = readEvaluation(response.body.toString(), admin.display);
    const { value, error } = evaluation;
    if (isData(format)) printData(evaluation, format, terminal);
    else terminal.out(printable(evaluationText(evaluation)));
    if (flags.exitCode === true && (error !== undefined || value !== true))
      throw new CliError(error === undefined ? "the result is not true" : "the expression failed");
  } finally {
    admin.close();
  }
}

function evaluationText({ value, error, clauses }: Evaluation): string {
  const results = clauses.slice(1).map((clause) => {
    const result = clause.error === undefined ? JSON.stringify(clause.value) : `error: ${clause.error}`;
    return `${"  ".repeat(clause.depth)}${clause.source} => ${result}\n`;
  });
  return `${error === undefined ? JSON.stringify(value) : `error: ${error}`}\n${results.join("")}`;
}

interface Evaluation {
  readonly value?: unknown;
  readonly error?: string;
  readonly clauses: readonly {
    readonly source: string;
    readonly depth: number;
    readonly value?: unknown;
    readonly error?: string;
  }[];
}

function readEvaluation(text: string, display: string): Evaluation {
  try {
    const value = readJson(RESPONSE, text) as Evaluation | null;
    if (Array.isArray(value?.clauses)) return value as Evaluation;
  } catch {
    // Invalid JSON is reported below.
  }
  throw new CliError(`${display} did not evaluate the expression: is that a gateway's admin interface?`);
}

const NEARLY_FULL = 0.8;

export function budgetsText(budgets: readonly Fields[], paint: Paint): string {
  const rows = budgets.flatMap((budget): Cell[][] => {
    const limit = numberOf(budget.limit);
    const name = String(budget.name);
    const rule = `${amount(budget.unit, limit)} per ${String(budget.per)}${budget.hard === false ? " (alerts only)" : ""}`;
    const resets = ageText(numberOf(budget.resetSeconds) * 1000);
    const keys = listOf(budget.keys);
    if (keys.length === 0) return [[name, String(budget.owner), rule, "(nothing spent)", "", "", resets]];
    const shown = keys.map((key, i): Cell[] => {
      const spent = numberOf(key.spent);
      const tone = toneOf(spent / limit);
      return [
        i === 0 ? name : "",
        i === 0 ? String(budget.owner) : "",
        i === 0 ? rule : "",
        String(key.key),
        { text: amount(budget.unit, spent), tone },
        { text: `${Math.floor((spent / limit) * 100)}%`, tone },
        i === 0 ? resets : "",
      ];
    });
    const hidden = numberOf(budget.keysInUse) - keys.length;
    return hidden > 0 ? [...shown, ["", "", "", `… ${counted(hidden, "more key")}`, "", "", ""]] : shown;
  });
  return table([["BUDGET", "APPLIES TO", "LIMIT", "KEY", "SPENT", "", "RESETS IN"], ...rows], { paint });
}

function amount(unit: unknown, value: number): string {
  return unit === "usd" ? `$${value.toFixed(value < 1 ? 4 : 2)}` : `${value} tokens`;
}

function toneOf(share: number): Tone | undefined {
  if (share >= 1) return "bad";
  return share >= NEARLY_FULL ? "warn" : undefined;
}

const HEAP_WARN_SHARE = 0.8;

export function memoryText(memory: Fields, paint: Paint): string {
  const [process, heap, external] = [fieldsOf(memory.process), fieldsOf(memory.heap), fieldsOf(memory.external)];
  const used = numberOf(heap.usedBytes);
  const limit = numberOf(heap.limitBytes);
  const share = limit === 0 ? 0 : used / limit;
  const rows: Cell[][] = [
    ["MEMORY", "USED", "OF"],
    ["process (resident)", size(process.rssBytes), `peak ${size(process.peakRssBytes)}`],
    [
      "heap",
      { text: size(used), tone: share > HEAP_WARN_SHARE ? "bad" : undefined },
      `limit ${size(limit)} (${Math.round(share * 100)}%)`,
    ],
    ...listOf(heap.spaces)
      .filter((space) => numberOf(space.usedBytes) > 0)
      .map((space) => [`  ${String(space.name)}`, size(space.usedBytes), size(space.sizeBytes)]),
    ["outside the heap", size(external.bytes), `buffers ${size(external.arrayBufferBytes)}`],
  ];
  const parts = Object.entries(fieldsOf(memory.parts)).map(([name, value]) => [name, partText(value)]);
  return `${table(rows, { paint })}\n${table([["COMPONENT", "HOLDS"], ...parts], { paint, maxLastChars: MESSAGE_CHARS })}`;
}

function size(bytes: unknown): string {
  return bytesText(numberOf(bytes));
}

function partText(value: unknown): string {
  if (value === null || value === undefined) return "-";
  if (Array.isArray(value)) return value.length === 0 ? "nothing" : value.map(partText).join("; ");
  if (typeof value !== "object") return String(value);
  const entries = Object.entries(value).filter(([, one]) => one !== null && one !== undefined);
  return entries
    .map(([name, one]) => {
      if (name.endsWith("Bytes") && typeof one === "number") return `${name.slice(0, -5)} ${bytesText(one)}`;
      return typeof one === "object" ? `${name} (${partText(one)})` : `${name} ${String(one)}`;
    })
    .join(", ");
}

export function tasksText(report: Fields, paint: Paint): string {
  const process = fieldsOf(report.process);
  const head = [
    `process ${numberOf(process.pid)}`,
    `up ${ageText(numberOf(process.ageMs))}`,
    bytesText(numberOf(process.rssBytes)),
    `${counted(numberOf(report.requestsInFlight), "request")} in flight`,
  ].join(", ");
  const rows = listOf(report.tasks).flatMap((task) => rowsOf(task, 0));
  return `${head}\n\n${table([["TASK", "NAME", "AGE", "DETAILS"], ...rows], { paint, maxLastChars: MESSAGE_CHARS })}`;
}

function rowsOf(task: Fields, depth: number): Cell[][] {
  const own: Cell[] = [
    `${"  ".repeat(depth)}${String(task.kind)}`,
    String(task.name),
    typeof task.ageMs === "number" ? ageText(task.ageMs) : "-",
    detailText(fieldsOf(task.detail)),
  ];
  const { targets, servers } = fieldsOf(task.detail);
  const below = [...listOf(servers), ...listOf(targets)].map((one): Cell[] => {
    const { target, state, ...rest } = one;
    const tone = state === "down" || state === "failing" ? "bad" : state === "up" ? "good" : undefined;
    const name = { text: `${String(target)}${state === undefined ? "" : ` ${String(state)}`}`, tone } as const;
    return [`${"  ".repeat(depth + 1)}server`, name, "", detailText(rest)];
  });
  return [own, ...below, ...listOf(task.children).flatMap((child) => rowsOf(child, depth + 1))];
}

function detailText(detail: Fields): string {
  return Object.entries(detail)
    .filter(([name, value]) => name !== "targets" && name !== "servers" && isPresent(value))
    .map(([name, value]) => {
      if (typeof value === "number" && name.endsWith("Bytes")) return `${name.slice(0, -5)} ${bytesText(value)}`;
      if (typeof value === "number" && name.endsWith("Ms")) return `${name.slice(0, -2)} ${ageText(value)}`;
      if (name === "failures") return listOf(value).map(failureText).join("; ");
      if (Array.isArray(value)) return `${name}: ${value.map(valueText).join(" | ")}`;
      if (name === "client") return `client ${Object.values(fieldsOf(value)).map(valueText).join(" ")}`;
      return `${name} ${valueText(value)}`;
    })
    .filter((text) => text !== "")
    .join(", ");
}

function valueText(value: unknown): string {
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}

function isPresent(value: unknown): boolean {
  return value !== null && value !== undefined && value !== "" && !(Array.isArray(value) && value.length === 0);
}

function failureText({ target, reason, agoMs, isOver }: Fields): string {
  const when = typeof agoMs === "number" ? ` ${ageText(agoMs)} ago` : "";
  return `${String(target)} failed${when}${isOver === true ? ", works again" : ""}: ${String(reason)}`;
}
