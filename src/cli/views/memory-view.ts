/**
 * `/memory` as a table: what the process takes, V8's heap by space, and what the parts of the gateway hold.
 */
import type { Paint } from "../terminal/paint.ts";
import { type Cell, MESSAGE_CHARS, table } from "../terminal/table.ts";
import { type Fields, fieldsOf, listOf, numberOf } from "./fields.ts";
import { bytesText } from "./units.ts";

/** Above this share of its limit the heap is close to ending the process. */
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
      `limit ${size(limit)} (${Math.round(share * 100)} %)`,
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

/** `inFlight 0, kept 9`; of lists the entries one after another. */
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
