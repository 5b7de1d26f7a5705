/**
 * Turns the task tree of the process into the rows of a table.
 */

import { bytesText, durationText } from "../../../../src/base/format.ts";
import type { Task } from "../../data/tasks.ts";
import { visible } from "../../parts/format.ts";

export interface TaskRow {
  readonly depth: number;
  readonly kind: string;
  readonly name: string;
  readonly ageMs?: number;
  readonly rssBytes?: number;
  /** Identifies the trace of a request in flight. */
  readonly requestId?: string;
  readonly details: string;
}

type Detail = Readonly<Record<string, unknown>>;

/** Lists in the details, such as the servers of a session, become rows below their task. */
export function taskRows(list: readonly Task[], depth = 0): TaskRow[] {
  return list.flatMap((task) => {
    const detail = task.detail ?? {};
    const { id } = detail;
    return [
      {
        ...rowOf(task.kind, task.name, detail, depth),
        ageMs: task.ageMs,
        ...(task.kind === "request" && typeof id === "string" ? { requestId: id } : {}),
      },
      ...Object.entries(detail).flatMap(([key, items]) => itemRows(key, items, depth + 1)),
      ...taskRows(task.children ?? [], depth + 1),
    ];
  });
}

function itemRows(key: string, items: unknown, depth: number): TaskRow[] {
  if (!Array.isArray(items)) return [];
  const kind = words(key).replace(/s$/, "");
  return items.map((item: unknown) => {
    if (typeof item !== "object" || item === null) return rowOf(kind, String(item), {}, depth);
    const { name, target, ...rest } = item as Detail;
    return rowOf(kind, String(name ?? target ?? ""), rest, depth);
  });
}

function rowOf(kind: string, name: string, detail: Detail, depth: number): TaskRow {
  const { rssBytes } = detail;
  return {
    depth,
    kind,
    name,
    ...(typeof rssBytes === "number" ? { rssBytes } : {}),
    details: detailsText(detail),
  };
}

function detailsText(detail: Detail): string {
  return Object.entries(detail)
    .flatMap(([key, value]) => {
      if (key === "rssBytes" || Array.isArray(value) || value === null || value === undefined || value === false)
        return [];
      return value === true ? [words(key)] : [`${words(key)} ${valueText(key, value)}`];
    })
    .join(" · ");
}

function valueText(key: string, value: unknown): string {
  if (key.endsWith("Bytes") && typeof value === "number") return bytesText(value);
  if (key.endsWith("Ms") && typeof value === "number") return durationText(value);
  return visible(typeof value === "object" ? JSON.stringify(value) : String(value));
}

/** Turns a field name such as `pendingCalls` or `sizeBytes` into words. */
function words(key: string): string {
  const plain = key.replace(/(?:Bytes|Ms)$/, "").replace(/^is(?=[A-Z])/, "");
  return plain.replace(/[A-Z]/g, (letter, at: number) => `${at === 0 ? "" : " "}${letter.toLowerCase()}`);
}
