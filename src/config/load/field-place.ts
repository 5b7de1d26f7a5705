/**
 * Where a field stands in the configuration, in the form of every problem: for what shows only when something is
 * opened, such as a port that is taken.
 */

import { pathText } from "../text/value-path.ts";
import type { Place } from "./normal-config.ts";

/** Also of a field that nobody wrote: then it is where its section begins. */
export function fieldPlace({ document, path }: Place, field: string): string {
  const whole = [...path, field];
  const at = document.position(whole);
  return `${at === undefined ? document.file : `${at.file}:${at.line}:${at.column}`}: ${pathText(whole)}`;
}
