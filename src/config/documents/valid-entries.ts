/**
 * Selects the valid entries of a policy with lists of limits, so that a mistake in one limit does not lift the others.
 */
import type { z } from "zod";
import type { Path } from "../text/value-path.ts";
import { isObject } from "../text/value-shapes.ts";

/** Every entry is validated together with the previous ones. No policy accepts as many. */
const CHECKED_ENTRIES = 64;

interface ValidEntries {
  readonly value: Readonly<Record<string, unknown>>;
  /** The entries and settings that were left out. */
  readonly dropped: readonly Path[];
}

/** `lists` names the lists of entries, outermost field first. Returns undefined if no entry is valid. */
export function validEntries(
  schema: z.ZodType,
  written: unknown,
  lists: readonly (readonly [string] | readonly [string, string])[],
): ValidEntries | undefined {
  if (!isObject(written)) return undefined;
  let value: Readonly<Record<string, unknown>> = {};
  const dropped: Path[] = [];
  const keep = (candidate: Readonly<Record<string, unknown>>, path: Path): void => {
    if (schema.safeParse(candidate).success) value = candidate;
    else dropped.push(path);
  };

  for (const [field, inner] of lists) {
    const outer = written[field];
    const settings = inner !== undefined && isObject(outer) ? outer : undefined;
    const entries = settings === undefined ? outer : settings[inner as string];
    const kept: unknown[] = [];
    for (const [i, entry] of (Array.isArray(entries) ? entries.slice(0, CHECKED_ENTRIES) : []).entries()) {
      const list = [...kept, entry];
      const before = value;
      keep(
        { ...value, [field]: settings === undefined ? list : { ...settings, [inner as string]: list } },
        inner === undefined ? [field, i] : [field, inner, i],
      );
      if (value !== before) kept.push(entry);
    }
    if (Array.isArray(entries) && entries.length > CHECKED_ENTRIES) dropped.push([field]);
  }
  if (Object.keys(value).length === 0) return undefined;

  for (const [field, setting] of Object.entries(written))
    if (!lists.some(([list]) => list === field)) keep({ ...value, [field]: setting }, [field]);
  return { value, dropped };
}
