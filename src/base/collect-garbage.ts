/**
 * Makes V8 collect all garbage now. It collects by itself when memory is allocated, and a process that refuses requests
 * because its memory is full allocates next to nothing: what it could free would keep it full.
 */
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";

let collect: (() => void) | undefined;

export function collectGarbage(): void {
  collect ??= findCollector();
  collect();
}

/** V8 gives its collector only to contexts that are made while this flag is set. */
function findCollector(): () => void {
  setFlagsFromString("--expose-gc");
  const found: unknown = runInNewContext("globalThis.gc");
  setFlagsFromString("--no-expose-gc");
  return typeof found === "function" ? () => void found() : () => undefined;
}
