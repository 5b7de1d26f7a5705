/**
 * `/debug/tasks` as a tree: listeners with their requests, MCP sessions, child processes, each with its age.
 */
import type { Paint } from "../terminal/paint.ts";
import { type Cell, MESSAGE_CHARS, table } from "../terminal/table.ts";
import { type Fields, fieldsOf, listOf, numberOf } from "./fields.ts";
import { ageText, bytesText, counted } from "./units.ts";

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
  // What a session knows of its servers is one row each.
  const targets = listOf(fieldsOf(task.detail).targets).map((one): Cell[] => {
    const { target, state, ...rest } = one;
    const tone = state === "down" ? "bad" : state === "up" ? "good" : undefined;
    const name = { text: `${String(target)}${state === undefined ? "" : ` ${String(state)}`}`, tone } as const;
    return [`${"  ".repeat(depth + 1)}server`, name, "", detailText(rest)];
  });
  return [own, ...targets, ...listOf(task.children).flatMap((child) => rowsOf(child, depth + 1))];
}

function detailText(detail: Fields): string {
  return Object.entries(detail)
    .filter(([name, value]) => name !== "targets" && isSaid(value))
    .map(([name, value]) => {
      if (typeof value === "number" && name.endsWith("Bytes")) return `${name.slice(0, -5)} ${bytesText(value)}`;
      if (typeof value === "number" && name.endsWith("Ms")) return `${name.slice(0, -2)} ${ageText(value)}`;
      if (name === "failures") return listOf(value).map(failureText).join("; ");
      if (Array.isArray(value)) return `${name}: ${value.map(String).join(" | ")}`;
      return `${name} ${typeof value === "object" ? JSON.stringify(value) : String(value)}`;
    })
    .filter((text) => text !== "")
    .join(", ");
}

function isSaid(value: unknown): boolean {
  return value !== null && value !== undefined && value !== "" && !(Array.isArray(value) && value.length === 0);
}

function failureText({ target, reason, agoMs, isOver }: Fields): string {
  const when = typeof agoMs === "number" ? ` ${ageText(agoMs)} ago` : "";
  return `${String(target)} failed${when}${isOver === true ? ", works again" : ""}: ${String(reason)}`;
}
